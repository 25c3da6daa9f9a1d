// What a person can get wrong about the fabric: a preset that does not exist, a line of the site's
// file.
#pragma once

#include "base/errors.h"

namespace ddp::fabric {

// One sentence: what is wrong, where, and what to do.
class FabricError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace ddp::fabric
