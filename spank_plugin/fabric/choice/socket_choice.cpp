// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/socket_choice.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "spank_plugin/fabric/choice/candidate.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kMaxExcluded = 16;  // NCCL reads no more

class Chooser {
 public:
  Chooser(const Node& node, const std::string& interface)
      : node_(node), interface_(interface), own_(nccl_interfaces(node, "")) {}

  SocketChoice choose(bool rdma_carries_data) const {
    const bool begins_right = !own_.empty() && own_.front() == interface_;
    if (begins_right && (rdma_carries_data || all_wanted(own_))) {
      return {"", "NCCL starts with " + interface_ + " by default", ""};
    }
    const std::string exact = std::string("=").append(interface_);
    if (rdma_carries_data || !others_are_worth_it()) return {exact, what_is_wrong(), ""};
    if (all_wanted(own_)) return {"", "several interfaces carry NCCL's data", doubt(own_)};
    const auto wanted = only(true, nccl_interfaces(node_, "^lo"));
    if (!has_interface(wanted)) return {exact, what_is_wrong(), ""};
    std::string value = excluding_the_others();
    // Exclusions are prefixes: eth1 would exclude eth10, too.
    if (nccl_interfaces(node_, value) != wanted) value = "=" + join(wanted, ",");
    return {value, what_is_wrong() + "; the others keep their share of the data", doubt(wanted)};
  }

 private:
  bool is_wanted(const std::string& name) const {
    const NetworkInterface* interface = node_.interface(name);
    return name == interface_ || (interface != nullptr && is_candidate(*interface) &&
                                  !is_slower(name) && address_of(node_.addresses, name));
  }

  bool has_interface(const std::vector<std::string>& names) const {
    return std::find(names.begin(), names.end(), interface_) != names.end();
  }

  bool all_wanted(const std::vector<std::string>& names) const {
    return std::all_of(names.begin(), names.end(), [this](const auto& n) { return is_wanted(n); });
  }

  // Returns those of the names that are wanted, or those that are not.
  std::vector<std::string> only(bool wanted, std::vector<std::string> names) const {
    std::erase_if(names, [this, wanted](const auto& name) { return is_wanted(name) != wanted; });
    return names;
  }

  std::optional<int> speed_of(const std::string& name) const {
    const NetworkInterface* interface = node_.interface(name);
    return interface == nullptr ? std::nullopt : interface->speed_mbps;
  }

  bool is_slower(const std::string& name) const {
    const auto speed = speed_of(name);
    const auto own_speed = speed_of(interface_);
    return speed && own_speed && *speed < *own_speed;
  }

  // True if NCCL uses another interface that is not known to be slower than this one. Always false
  // if the leader is reached through a VPN or similar, because the node's networks then do not lead
  // to it.
  bool others_are_worth_it() const {
    const NetworkInterface* chosen = node_.interface(interface_);
    if (chosen == nullptr || !is_candidate(*chosen)) return false;
    return std::any_of(own_.begin(), own_.end(),
                       [this](const auto& name) { return name != interface_ && is_wanted(name); });
  }

  std::string what_is_wrong() const {
    if (own_.empty()) return "NCCL would find no interface";
    if (own_.front() != interface_) return "NCCL would start with " + own_.front();
    return "NCCL would also send data over " + join(only(false, own_), ", ");
  }

  // Returns a warning; empty if the first of these names is the right one.
  std::string doubt(const std::vector<std::string>& names) const {
    if (names.front() == interface_) return {};
    return "NCCL starts with " + names.front() + ", while MASTER_ADDR is reached through " +
           interface_ +
           ": if the ranks do not find each other, set NCCL_SOCKET_IFNAME==" + interface_;
  }

  // Returns the usual list of exclusions, plus any other interface of this node that is unwanted or
  // slow. Empty if it is longer than NCCL reads.
  std::string excluding_the_others() const {
    std::vector<std::string> excluded{"docker", "lo", "virbr", "veth", "br-"};
    for (const auto& name : own_) {
      const bool covered = std::any_of(excluded.begin(), excluded.end(), [&](const auto& prefix) {
        return name.starts_with(prefix);
      });
      if (!covered && !is_wanted(name)) excluded.push_back(name);
    }
    if (excluded.size() > kMaxExcluded) return {};
    return std::string("^").append(join(excluded, ","));
  }

  const Node& node_;
  const std::string& interface_;
  std::vector<std::string> own_;
};

}  // namespace

SocketChoice choose_nccl_sockets(const Node& node, const std::string& interface,
                                 bool rdma_carries_data) {
  return Chooser(node, interface).choose(rdma_carries_data);
}

}  // namespace ddp::fabric
