#include "ddp_runtime/check/net/measure/stage.h"

#include <algorithm>
#include <array>

#include "ddp_runtime/comm/errors.h"

namespace ddp::check {
namespace {

struct StageNames {
  Stage stage;
  const char* name;
  const char* title;
};

constexpr std::array kStages{
    StageNames{Stage::tcp, "tcp", "TCP"}, StageNames{Stage::verbs, "verbs", "RDMA"},
    StageNames{Stage::nccl, "nccl", "NCCL"}, StageNames{Stage::mpi, "mpi", "MPI"}};

const StageNames& stage_names(Stage stage) {
  return *std::find_if(kStages.begin(), kStages.end(),
                       [stage](const StageNames& names) { return names.stage == stage; });
}

}  // namespace

std::string name_of(Stage stage) {
  return stage_names(stage).name;
}

std::string title_of(Stage stage) {
  return stage_names(stage).title;
}

Stage stage_named(std::string_view name) {
  const auto found = std::find_if(kStages.begin(), kStages.end(),
                                  [name](const StageNames& names) { return names.name == name; });
  if (found != kStages.end()) return found->stage;
  throw RuntimeError("there is no way '" + std::string(name) + "' to measure pairs");
}

}  // namespace ddp::check
