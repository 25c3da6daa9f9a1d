// SPDX-License-Identifier: Apache-2.0
// What the node's own name resolves to on the node: Gloo and others announce that address.
#pragma once

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/resolve.h"

namespace ddp::check {

Finding evaluate_host_name(const Resolution& resolution);

}  // namespace ddp::check
