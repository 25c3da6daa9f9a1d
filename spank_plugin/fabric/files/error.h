// SPDX-License-Identifier: Apache-2.0
// User errors in fabric settings: a preset that does not exist, an invalid line of the site's file.
#pragma once

#include "base/errors.h"

namespace ddp::fabric {

// One sentence: what is wrong, where, and what to do.
class FabricError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace ddp::fabric
