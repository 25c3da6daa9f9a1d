#pragma once
// What can go wrong between a step's facts and its plan.

#include <stdexcept>

namespace ddp::launch {

// One sentence for the person who started the step: what is wrong, where, and what to do.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::launch
