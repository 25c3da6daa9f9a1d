// The two kinds of failure a run can have, told apart by who can fix it and who must speak of it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace ddp {

// The user asked for something impossible. The text is one sentence: what is wrong, where, and
// what to do. Executables exit with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something that should work did not: a file, a peer, the network. Executables exit with 1.
class RuntimeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a rank sees when another one is wrong.
enum class Symptom : std::uint8_t { none, long_wait, wrong_length };

// A collective cannot go on, and who is to blame is for all ranks to find out.
class BrokenCollective : public RuntimeError {
 public:
  BrokenCollective(Symptom symptom, const std::string& text)
      : RuntimeError(text), symptom_(symptom) {}

  Symptom symptom() const noexcept { return symptom_; }

 private:
  Symptom symptom_;
};

// Another rank failed; what() carries that rank's own text. The rank that failed prints it, so the
// others end without repeating it, unless it was lost and could not.
class PeerFailure : public RuntimeError {
 public:
  PeerFailure(int rank, const std::string& text, bool lost, bool is_usage_error = false)
      : RuntimeError(text), rank_(rank), lost_(lost), users_mistake_(is_usage_error) {}

  int rank() const noexcept { return rank_; }
  bool lost() const noexcept { return lost_; }
  // It was a UsageError there.
  bool is_usage_error() const noexcept { return users_mistake_; }

 private:
  int rank_;
  bool lost_;
  bool users_mistake_;
};

}  // namespace ddp
