// User errors in fabric settings: a preset that does not exist, a wrong line of the site's file.
#pragma once

#include <stdexcept>

namespace ddp::fabric {

// One sentence: what is wrong, where, and what to do.
class FabricError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddp::fabric
