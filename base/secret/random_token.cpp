// SPDX-License-Identifier: Apache-2.0
#include "base/secret/random_token.h"

#include "base/secret/key.h"

namespace ddp {

std::string random_token() {
  return hex_of(random_key()).substr(0, 32);
}

}  // namespace ddp
