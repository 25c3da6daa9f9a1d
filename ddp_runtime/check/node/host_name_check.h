// What the node's own name means to itself: Gloo and others announce the address it resolves to.
#pragma once

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/resolve.h"

namespace ddp::check {

Finding evaluate_host_name(const Resolution& resolution);

}  // namespace ddp::check
