// ddp-bench: measures what the runtime costs, always beside something to compare with.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/tools/bench/step_bench.h"
#include "ddp_runtime/tools/validators.h"
#include "slurm_ddp/version.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  ddp-bench step --model mlp --width 1024 --layers 8
      What wrapping a model costs in a world of one.
  srun --ddp -N2 -n2 ddp-bench step --json step.json
      A step of two ranks beside the same step without communication.)";

void write_json(const std::string& file, const nlohmann::json& result) {
  std::ofstream stream(file);
  stream << result.dump(2) << "\n";
  stream.flush();
  if (!stream) throw ddp::RuntimeError(fmt::format("cannot write {}", file));
}

std::string milliseconds(const nlohmann::json& seconds) {
  return fmt::format("p10 {:8.3f}   p50 {:8.3f}   p90 {:8.3f} ms",
                     1e3 * seconds.at("p10").get<double>(), 1e3 * seconds.at("p50").get<double>(),
                     1e3 * seconds.at("p90").get<double>());
}

void print_step(const nlohmann::json& result) {
  const auto& plain = result.at("compared").at("plain_loop_without_communication");
  fmt::print("{} parameters, {} ranks, batch {} each, {} steps, {} buckets\n",
             result.at("parameters").get<std::int64_t>(), result.at("world_size").get<int>(),
             result.at("batch").get<std::int64_t>(), result.at("steps").get<std::int64_t>(),
             result.at("buckets").get<std::int64_t>());
  fmt::print("ours                              {}\n", milliseconds(result.at("step_seconds")));
  fmt::print("plain loop, no communication      {}\n", milliseconds(plain.at("step_seconds")));
  fmt::print("ratio of medians                  {:.3f}\n",
             plain.at("our_p50_over_its_p50").get<double>());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the runtime beside something to compare with.");
  app.footer(kExamples);
  app.set_version_flag("--version", fmt::format("ddp-bench {}", ddp::kVersion));
  app.set_config("--config", "", "Read options from a file (name=value lines)");
  app.require_subcommand(1);
  std::string json_file;
  int threads = 0;
  ddp::bench::StepBenchOptions step_options;
  step_options.model.width = 1024;
  step_options.model.layers = 8;

  auto* step = app.add_subcommand("step", "Time of a training step");
  step->add_option("--model", step_options.model.name, "mlp or mnist-cnn")->capture_default_str();
  step->add_option("--width", step_options.model.width, "Units or channels per layer")
      ->capture_default_str();
  step->add_option("--layers", step_options.model.layers, "Hidden layers of mlp")
      ->capture_default_str();
  step->add_option("--batch", step_options.batch, "Samples per rank")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  step->add_option("--steps", step_options.steps, "Measured steps of each kind")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  step->add_option("--threads", threads, "Compute threads per rank; 0: as OMP_NUM_THREADS says");
  step->add_option("--json", json_file, "Also write the result to this file");

  const bool speaks = ddp::comm::rank_from_environment() == 0;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    if (speaks) fmt::print(stderr, "ddp-bench: {}; see --help\n", e.what());
    return 2;
  }
  return ddp::comm::run("ddp-bench", {}, [&](ddp::comm::World& world) {
    if (threads > 0) torch::set_num_threads(threads);
    auto& model = step_options.model;
    if (model.name == "mlp") {
      model.input = {model.width};
    } else {
      model.input = {1, 28, 28};
      model.layers = 0;
    }
    const auto result = ddp::bench::run_step_bench(world, step_options);
    if (!world.is_leader()) return;
    print_step(result);
    if (!json_file.empty()) write_json(json_file, result);
  });
}
