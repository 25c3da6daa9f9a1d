// What is wrong with a report's input, for the person who asked for the report.
#pragma once

#include <stdexcept>

namespace ddp::report {

// One sentence: which file, what in it, what to do.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::report
