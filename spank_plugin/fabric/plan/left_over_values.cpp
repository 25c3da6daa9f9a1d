// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/left_over_values.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"

namespace ddp::fabric {
namespace {

// The values that are reported: all, those listed, all but "0", or by the number that NCCL reads.
enum class When : std::uint8_t { always, one_of, not_zero, number_not_zero, number_zero };

// A variable from a debugging session or from another cluster's recipe.
struct Suspect {
  const char* name;
  When when;
  std::string_view values;  // for one_of: separated by |
  const char* effect;
};

// NVIDIA's list of debugging variables, and variables that are often copied between public job
// scripts.
constexpr std::array<Suspect, 20> kSuspects{{
    {"NCCL_DEBUG", When::one_of, "TRACE|trace",
     "it writes a line per call and slows training down"},
    {"NCCL_P2P_DISABLE", When::number_not_zero, "",
     "GPUs of a node communicate through the host's memory"},
    {"NCCL_SHM_DISABLE", When::number_not_zero, "",
     "processes of a node communicate over the network"},
    {"NCCL_NVLS_ENABLE", When::number_zero, "", "NVLink's reductions in the switch are off"},
    {"NCCL_MNNVL_ENABLE", When::number_zero, "", "NVLink to GPUs of other nodes is off"},
    {"NCCL_CUMEM_ENABLE", When::number_zero, "",
     "NVLink to GPUs of other nodes (GB200) and NVLink's reductions in the switch are off"},
    {"NCCL_ALGO", When::always, "", "NCCL no longer chooses by size; an unknown word is an error"},
    {"NCCL_PROTO", When::always, "", "LL128 where the platform lacks it corrupts data"},
    {"NCCL_NTHREADS", When::always, "", "NCCL's own choice is tuned for the GPU"},
    {"NCCL_BUFFSIZE", When::always, "", "the best value differs between fabrics"},
    {"NCCL_MIN_NCHANNELS", When::always, "", "channels take GPU cores from training"},
    {"NCCL_MAX_NCHANNELS", When::always, "", "it limits the bandwidth"},
    {"NCCL_NSOCKS_PERTHREAD", When::always, "", "the best value differs between networks"},
    {"NCCL_SOCKET_NTHREADS", When::always, "", "its threads take cores from data loading"},
    {"NCCL_NET_GDR_LEVEL", When::one_of, "SYS|sys|5",
     "GPU memory is read across CPUs, which is slower than through the host on many machines"},
    {"NCCL_IB_TIMEOUT", When::one_of, "21|22|23|24",
     "a dead node is detected minutes later than by default"},
    {"NCCL_CHECKS_DISABLE", When::number_not_zero, "", "NCCL no longer detects invalid arguments"},
    {"NCCL_LAUNCH_MODE", When::always, "", "it is a debugging variable of old releases"},
    {"CUDA_LAUNCH_BLOCKING", When::not_zero, "",
     "communication no longer overlaps with computation"},
    {"TORCH_DISTRIBUTED_DEBUG", When::one_of, "DETAIL|detail",
     "each collective is checked on all ranks first"},
}};

bool is_suspicious(const Suspect& suspect, const std::string& value) {
  switch (suspect.when) {
    case When::always:
      return true;
    case When::not_zero:
      return value != "0";
    case When::number_not_zero:
      return nccl_number(value) != 0;
    case When::number_zero:
      return nccl_number(value).value_or(0) == 0;
    case When::one_of:
      break;
  }
  const auto values = split(suspect.values, '|', 8);
  return std::find(values.begin(), values.end(), value) != values.end();
}

// What NCCL makes of a text where it reads a number.
std::string effect_of(When when, const char* effect, const std::string& value) {
  const bool is_number = when == When::number_not_zero || when == When::number_zero;
  if (!is_number || nccl_number(value)) return effect;
  const std::string read = "NCCL reads a number, and this counts as 0, ";
  return read + (when == When::number_zero ? std::string("so ") + effect
                                           : "so nothing is disabled; set 1 if that is meant");
}

void warn_of_suspect(const Suspect& suspect, const UserOverride& given, PlanBuilder& builder) {
  builder.warn(shown(suspect.name, given) + ": " +
               effect_of(suspect.when, suspect.effect, given.value) +
               (given.source == "environment" ? "; left over in your shell?" : ""));
}

// Without RDMA ports of NCCL's own (none, or Slingshot and EFA by a plugin) it disables nothing.
void check_ib_disable(const Node& node, PlanBuilder& builder) {
  constexpr Suspect kDisable{"NCCL_IB_DISABLE", When::number_not_zero, "",
                             "all traffic between nodes goes over TCP"};
  const auto given = builder.given(kDisable.name);
  if (!given || nccl_ports(node, "").empty() || !is_suspicious(kDisable, given->value)) return;
  warn_of_suspect(kDisable, *given, builder);
}

}  // namespace

void warn_of_left_over_values(const Node& node, PlanBuilder& builder) {
  for (const Suspect& suspect : kSuspects) {
    const auto given = builder.given(suspect.name);
    if (!given || !is_suspicious(suspect, given->value)) continue;
    warn_of_suspect(suspect, *given, builder);
  }
  check_ib_disable(node, builder);
}

}  // namespace ddp::fabric
