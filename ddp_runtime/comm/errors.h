// The two kinds of failure a run can have, told apart by who can mend it and who must speak of it.
#pragma once

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

// Another rank failed; what() carries that rank's own text. The rank that failed prints it, so the
// others end without repeating it, unless it was lost and could not.
class PeerFailure : public RuntimeError {
 public:
  PeerFailure(int rank, const std::string& text, bool lost)
      : RuntimeError(text), rank_(rank), lost_(lost) {}

  int rank() const noexcept { return rank_; }
  bool lost() const noexcept { return lost_; }

 private:
  int rank_;
  bool lost_;
};

}  // namespace ddp
