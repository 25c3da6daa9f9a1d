#pragma once
// Errors that can occur while a step's facts are turned into its plan.

#include <stdexcept>

namespace ddp::launch {

// One sentence for the user who started the step: what is wrong, where, and what to do.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::launch
