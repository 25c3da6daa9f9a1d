// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/transport_kind.h"

#include <algorithm>
#include <array>

#include "base/errors.h"

namespace ddp::check {
namespace {

struct StageNames {
  TransportKind stage;
  const char* name;
  const char* title;
};

constexpr std::array kStages{
    StageNames{TransportKind::tcp, "tcp", "TCP"}, StageNames{TransportKind::verbs, "verbs", "RDMA"},
    StageNames{TransportKind::nccl, "nccl", "NCCL"}, StageNames{TransportKind::mpi, "mpi", "MPI"}};

const StageNames& stage_names(TransportKind stage) {
  return *std::find_if(kStages.begin(), kStages.end(),
                       [stage](const StageNames& names) { return names.stage == stage; });
}

}  // namespace

std::string name_of(TransportKind stage) {
  return stage_names(stage).name;
}

std::string title_of(TransportKind stage) {
  return stage_names(stage).title;
}

TransportKind stage_named(std::string_view name) {
  const auto found = std::find_if(kStages.begin(), kStages.end(),
                                  [name](const StageNames& names) { return names.name == name; });
  if (found != kStages.end()) return found->stage;
  throw RuntimeError("unknown transport '" + std::string(name) + "'");
}

}  // namespace ddp::check
