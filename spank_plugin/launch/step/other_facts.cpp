// SPDX-License-Identifier: Apache-2.0
// Detects the launcher, and reads the facts of steps that SLURM did not start.
#include <limits>

#include "base/text.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

std::uint32_t open_mpi_number(const EnvLookup& environment, const std::string& name) {
  const auto text = environment(name).value_or("");
  const auto number = parse_decimal(text, std::numeric_limits<std::int32_t>::max());
  if (!number)
    throw LaunchError(name + "=" + quote_for_display(text) +
                      " is not a number; was it set by hand?");
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

std::vector<GpuList> read_gpu_lists(const EnvLookup& environment) {
  std::vector<GpuList> lists;
  // NVIDIA, AMD (two names), Intel; the last is also AMD's, and SLURM sets it in addition to the
  // others.
  for (const auto* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                           "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"}) {
    if (auto devices = environment(name)) lists.push_back({name, std::move(*devices)});
  }
  return lists;
}

std::string read_gpu_numbers(const EnvLookup& environment) {
  return environment("SLURM_STEP_GPUS").value_or("");
}

Launcher detect_launcher(const EnvLookup& environment) {
  // SLURM's PMIx plugin names its steps this way; mpirun's runtime names its jobs by a number.
  const bool slurm_pmix = environment("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix.");
  if (!slurm_pmix && environment("OMPI_COMM_WORLD_RANK")) return Launcher::open_mpi;
  if (environment("SLURM_STEP_NUM_TASKS") && environment("SLURM_PROCID")) return Launcher::slurm;
  return Launcher::none;
}

Facts read_open_mpi(const EnvLookup& environment, const std::string& host_name) {
  Facts facts;
  auto& step = facts.step;
  auto& task = facts.task;
  step.launcher = Launcher::open_mpi;
  task.rank = open_mpi_number(environment, "OMPI_COMM_WORLD_RANK");
  task.local_rank = open_mpi_number(environment, "OMPI_COMM_WORLD_LOCAL_RANK");
  step.task_count = open_mpi_number(environment, "OMPI_COMM_WORLD_SIZE");
  task.local_task_count = open_mpi_number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  task.node_name = host_name;
  task.gpus = read_gpu_lists(environment);
  if (task.rank >= step.task_count || task.local_rank >= task.local_task_count ||
      task.local_task_count > step.task_count) {
    throw LaunchError(
        "the OMPI_COMM_WORLD_* variables contradict each other; were they set by hand?");
  }
  // These are the only variables whose value all ranks of one mpirun share and other runs do not.
  auto name = environment("PMIX_NAMESPACE");
  if (!name) name = environment("OMPI_MCA_ess_base_jobid");
  if (!name)
    throw LaunchError(
        "mpirun set neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid; use Open MPI 2 or newer");
  step.id = "mpirun-" + std::to_string(hash_of(*name));
  step.port_key = hash_of(*name);
  step.node_count = task.local_task_count == step.task_count ? 1 : 0;
  if (step.node_count == 1) {
    step.nodes = {host_name};
    task.node_rank = 0;
  }
  return facts;
}

Facts single_process(const EnvLookup& environment, const std::string& host_name,
                     std::uint32_t process_id) {
  Facts facts;
  facts.task.gpus = read_gpu_lists(environment);
  facts.step.id = "process-" + std::to_string(process_id);
  facts.step.port_key = process_id;
  facts.step.nodes = {host_name};
  facts.task.node_name = host_name;
  facts.task.node_rank = 0;
  return facts;
}

}  // namespace ddp::launch
