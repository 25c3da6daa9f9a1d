// SPDX-License-Identifier: Apache-2.0
// Errors that concern more than one rank: a collective that cannot complete, and the failure of
// another rank.
#pragma once

#include <cstdint>
#include <string>

#include "base/errors.h"

namespace ddp {

// The symptom that a rank observes when another rank has failed. `remote_error`: the library that
// communicates says that another process ended, or that the network failed.
enum class Symptom : std::uint8_t { none, remote_error, long_wait, wrong_length };

// A collective cannot complete. The cause is known only after asking all ranks.
class BrokenCollective : public RuntimeError {
 public:
  BrokenCollective(Symptom symptom, const std::string& text)
      : RuntimeError(text), symptom_(symptom) {}

  Symptom symptom() const noexcept { return symptom_; }

 private:
  Symptom symptom_;
};

// Another rank failed. what() returns that rank's own error message. The failed rank prints this
// message, so the others exit without repeating it, unless the failed rank was lost and could not
// print it.
class PeerFailure : public RuntimeError {
 public:
  PeerFailure(int rank, const std::string& text, bool lost, bool is_usage_error = false)
      : RuntimeError(text), rank_(rank), lost_(lost), users_mistake_(is_usage_error) {}

  int rank() const noexcept { return rank_; }
  bool lost() const noexcept { return lost_; }
  // Whether it was a UsageError on that rank.
  bool is_usage_error() const noexcept { return users_mistake_; }

 private:
  int rank_;
  bool lost_;
  bool users_mistake_;
};

}  // namespace ddp
