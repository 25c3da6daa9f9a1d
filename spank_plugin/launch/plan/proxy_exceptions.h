// SPDX-License-Identifier: Apache-2.0
// Exempts the step's nodes from HTTP proxies. JAX and TensorFlow reach the other nodes by gRPC,
// which uses a proxy if the environment names one, and then waits forever, because a proxy outside
// the cluster cannot connect to its nodes.
#pragma once

#include "spank_plugin/launch/plan/plan_builder.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

// Sets no_grpc_proxy, which only gRPC reads, to the value of no_proxy plus the hosts in the plan's
// JAX_COORDINATOR_ADDRESS and TF_CONFIG. Does nothing if no_proxy already has them or if no proxy
// is set.
void add_proxy_exceptions(PlanBuilder& plan, const Facts& facts, const Settings& settings,
                          const Inherited& inherited);

// True if gRPC connects to `host` directly: an entry of the comma-separated list is a suffix of it.
bool is_proxy_exception(std::string_view host, std::string_view list) noexcept;

}  // namespace ddp::launch
