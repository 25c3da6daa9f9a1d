#include "ddp_runtime/check/net/stage.h"

#include <algorithm>
#include <array>

#include "ddp_runtime/comm/errors.h"

namespace ddp::check {
namespace {

struct Names {
  Stage stage;
  const char* name;
  const char* title;
};

constexpr std::array kStages{Names{Stage::tcp, "tcp", "TCP"}, Names{Stage::verbs, "verbs", "RDMA"},
                             Names{Stage::nccl, "nccl", "NCCL"}, Names{Stage::mpi, "mpi", "MPI"}};

const Names& names_of(Stage stage) {
  return *std::find_if(kStages.begin(), kStages.end(),
                       [stage](const Names& names) { return names.stage == stage; });
}

}  // namespace

std::string name_of(Stage stage) {
  return names_of(stage).name;
}

std::string title_of(Stage stage) {
  return names_of(stage).title;
}

Stage stage_named(std::string_view name) {
  const auto found = std::find_if(kStages.begin(), kStages.end(),
                                  [name](const Names& names) { return names.name == name; });
  if (found != kStages.end()) return found->stage;
  throw RuntimeError("there is no way '" + std::string(name) + "' to measure pairs");
}

}  // namespace ddp::check
