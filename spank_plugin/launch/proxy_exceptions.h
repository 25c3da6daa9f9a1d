#pragma once
// JAX and TensorFlow reach the other nodes by gRPC, which goes through an HTTP proxy if the
// environment names one, and then waits for ever: proxies do not lead back into a cluster.

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/plan_builder.h"

namespace ddp::launch {

// Sets no_grpc_proxy, which only gRPC reads, to what no_proxy says and the hosts that the plan's
// JAX_COORDINATOR_ADDRESS and TF_CONFIG name; not if no_proxy has them, or no proxy is given.
void add_proxy_exceptions(PlanBuilder& plan, const Facts& facts, const Settings& settings,
                          const Inherited& inherited);

// Whether gRPC goes to `host` directly: an entry of the comma-separated list is its end.
bool is_proxy_exception(std::string_view host, std::string_view list) noexcept;

}  // namespace ddp::launch
