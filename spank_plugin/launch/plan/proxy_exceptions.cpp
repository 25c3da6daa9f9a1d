// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/proxy_exceptions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxExceptions = 126'000;  // SLURM accepts variables of less than 128 KiB

// Returns the name of the first proxy variable that gRPC finds in the environment; empty if none.
std::string proxy_of(const Inherited& inherited) {
  for (const auto* name : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (inherited.from_user(name)) return name;
  }
  return {};
}

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns the host of "HOST:PORT" or "[HOST]:PORT".
std::string host_of(std::string_view endpoint) {
  const auto host = endpoint.substr(0, endpoint.rfind(':'));
  if (host.size() > 1 && host.front() == '[') return std::string(host.substr(1, host.size() - 2));
  return std::string(host);
}

}  // namespace

bool is_proxy_exception(std::string_view host, std::string_view list) noexcept {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  for (;;) {
    const auto end = list.find(',');
    std::string_view entry = list.substr(0, end);
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    if (!entry.empty() && entry.size() <= host.size() &&
        std::equal(entry.rbegin(), entry.rend(), host.rbegin(), same)) {
      return true;
    }
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

void add_proxy_exceptions(PlanBuilder& plan, const Facts& facts, const Settings& settings,
                          const Inherited& inherited) {
  constexpr const char* kName = "no_grpc_proxy";
  if (facts.step.node_count == 1) return;
  const std::string proxy = proxy_of(inherited);
  if (proxy.empty() || plan.keep_if_users(kName)) return;
  std::vector<std::string> hosts = {host_of(plan.value_of("JAX_COORDINATOR_ADDRESS"))};
  if (!plan.value_of("TF_CONFIG").empty()) {
    for (const auto& node : facts.step.nodes)
      hosts.push_back(address_of_node(node, facts, settings));
  }
  const std::string given = inherited.from_user("no_proxy").value_or("");
  std::string list = given;
  for (const auto& host : hosts) {
    if (host.empty() || is_proxy_exception(host, list) || list.size() > kMaxExceptions) continue;
    list.append(list.empty() ? "" : ",").append(host);
  }
  if (list == given || list.size() > kMaxExceptions) return;
  plan.suggest(kName, list, "gRPC (JAX, TensorFlow) does not use " + proxy + " for these hosts",
               "no_proxy, MASTER_ADDR");
}

}  // namespace ddp::launch
