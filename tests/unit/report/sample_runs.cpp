// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/report/sample_runs.h"

#include <numeric>

namespace ddp::report::test {

nlohmann::json run_json(int world_size, double global_batch, const std::vector<double>& parts) {
  const double mean = std::accumulate(parts.begin(), parts.end(), 0.0);
  const nlohmann::json seconds = {{"p50", mean},
                                  {"p95", 1.5 * mean},
                                  {"mean", mean},
                                  {"data", parts[0]},
                                  {"forward", parts[1]},
                                  {"backward", parts[2]},
                                  {"exposed_comm", parts[3]},
                                  {"optimizer", parts[4]},
                                  {"checkpoint", parts[5]},
                                  {"other", parts[6]}};
  nlohmann::json ranks = nlohmann::json::array();
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back({{"rank", rank}, {"node", "node1"}, {"step_seconds", seconds}});
  }
  return {{"schema", "slurm-ddp/run/1"},
          {"program", "ddp-train 0.1.0"},
          {"command", "ddp-train --model mlp"},
          {"started_unix", 1700000000.0},
          {"finished_unix", 1700000100.0},
          {"world_size", world_size},
          {"nodes", 1},
          {"backend", world_size > 1 ? "mpi" : "self"},
          {"device", "cpu"},
          {"model", "mlp"},
          {"data", "digits"},
          {"parameters", 12345},
          {"global_batch", global_batch},
          {"steps", 500},
          {"epochs", 20},
          {"samples_per_second", global_batch / mean},
          {"final", {{"train_loss", 0.01}, {"eval_loss", 0.05}, {"eval_accuracy", 0.98}}},
          {"parameters_crc32c", "0x1234abcd"},
          {"step_seconds", seconds},
          {"comm",
           {{"bytes_per_step", 49380},
            {"busbw_GBps", world_size > 1 ? nlohmann::json(2.5) : nlohmann::json()},
            {"overlap_ratio", world_size > 1 ? nlohmann::json(0.75) : nlohmann::json()}}},
          {"ranks", ranks},
          {"environment", {{"SLURM_JOB_ID", "4711"}}}};
}

RunRecord run_of(const nlohmann::json& json, const std::string& source) {
  return parse_run(json.dump(), source);
}

}  // namespace ddp::report::test
