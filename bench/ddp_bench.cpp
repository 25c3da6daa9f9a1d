// SPDX-License-Identifier: Apache-2.0
// ddp-bench: measures the cost of the runtime relative to alternatives.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"
#include "bench/allreduce_bench.h"
#include "bench/async_bench.h"
#include "bench/ckpt_bench.h"
#include "bench/memory_bench.h"
#include "bench/pipeline_bench.h"
#include "bench/print_result.h"
#include "bench/step_bench.h"
#include "bench/timeline.h"
#include "bench/trainer_bench.h"
#include "ddp_runtime/comm/group/launcher_rank.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/parallel/device/cuda.h"
#include "ddp_runtime/tools/validators.h"
#include "slurm_ddp/version.h"

namespace {

namespace bench = ddp::bench;
using nlohmann::json;

constexpr const char* kExamples = R"(Examples:
  ddp-bench step --model mlp --width 1024 --layers 8
      The cost of wrapping a model, on one rank.
  srun --ddp -N2 -n2 ddp-bench step --json step.json
      A step on two ranks, compared with Python's DDP and with the same step without communication.
  ddp-bench step --device cuda --precision bf16 --model gpt --width 768 --layers 12 --heads 12 --context 1024 \
    --classes 50257 --batch 16 --optimizer adamw --python-step graph
      A step of GPT-2 on a GPU, compared with Python's as a CUDA graph.
  mpirun -n 2 ddp-bench step --optimizer adamw --shard parameters --python ~/torch/bin/python
      A step that divides the parameters, compared with Python's FSDP2.
  mpirun -n 2 ddp-bench pipeline --micro-batches 8 --python ~/torch/bin/python
      A model cut into stages, compared with the time that the stages predict, with data parallelism, and with
      Python's pipelines.
  ddp-bench trainer
      What the trainer and callbacks of yours add to a step.
  srun --ddp -N2 -n2 ddp-bench memory
      Peak memory of training, compared with a plain loop.
  srun --ddp -N2 -n2 ddp-bench allreduce --mib 64
      Our all-reduce, compared with MPI's, Gloo's and a memcpy of the same size.
  ddp-bench ckpt --mib 1024 --dir /scratch/me
      A checkpoint, compared with raw disk writes, torch.save, h5py and the safetensors layout.)";

constexpr double kMebibyte = 1048576;

// Options of one command. Each command has its own copy, because a --config file may set options of
// commands that are not run.
struct Options {
  std::string json_file;
  int threads = 0;
  bool plain = false;
  double bucket_mb = 0;  // 0: not given
  std::int64_t context = 128;
  std::int64_t image = 32;
  std::int64_t classes = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string network = "assume";
  double segment_kib =
      static_cast<double>(ddp::comm::WorldOptions{}.group.limits.segment_bytes) / 1024;
  bench::StepBenchOptions step;
  int micro_batches = 8;
  int stages_per_rank = 2;
  bench::AllreduceBenchOptions allreduce;
  bench::TimelineOptions timeline;
  bench::CkptBenchOptions ckpt;
  bench::AsyncBenchOptions async;
  ddp::comm::WorldOptions world;
};

void add_model(CLI::App& command, Options& options) {
  auto& model = options.step.model;
  command.add_option("--model", model.name, "mlp, mnist-cnn, resnet18, resnet50 or gpt")
      ->capture_default_str();
  command
      .add_option(
          "--width", model.width,
          "Units or channels per layer; 0 means 1024 for mlp, 256 for gpt, else the model's "
          "default")
      ->capture_default_str();
  command
      .add_option("--layers", model.layers,
                  "Hidden layers of mlp or blocks of gpt; 0 means 8 for mlp, 4 for gpt")
      ->capture_default_str();
  command.add_option("--context", options.context, "Context length of gpt in tokens")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command.add_option("--batch", options.step.batch, "Samples per rank")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command
      .add_option("--bucket-mb", options.bucket_mb,
                  "Bucket size in MiB (default: 4 on CPUs, 25 on GPUs)")
      ->check(ddp::tools::positive());
  command.add_option("--threads", options.threads,
                     "Compute threads per rank; 0 means OMP_NUM_THREADS");
  command.add_option("--json", options.json_file, "Also write the result to this JSON file");
}

void add_blocks(CLI::App& command, bench::StepBenchOptions& step) {
  command.add_option("--steps", step.steps, "Number of measured steps per variant")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command.add_option("--block", step.block, "Steps per variant before switching to the next one")
      ->check(ddp::tools::positive())
      ->capture_default_str();
}

CLI::App* add_step(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand("step", "Measure the time of a training step");
  add_model(*command, options);
  auto& step = options.step;
  command->add_option("--heads", options.step.model.heads, "Attention heads of gpt; 0 means 4")
      ->check(ddp::tools::not_negative())
      ->capture_default_str();
  command
      ->add_option("--classes", options.classes,
                   "Classes, or the vocabulary of gpt; 0 means 10, or 256 for gpt")
      ->check(ddp::tools::not_negative())
      ->capture_default_str();
  command
      ->add_option("--image", options.image,
                   "Height and width of the images of resnet18 and resnet50")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command
      ->add_option("--device", options.device,
                   "cpu or cuda: where all loops compute. On GPUs the blocks are timed, not the "
                   "steps, and Python's DDP communicates over NCCL")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--precision", options.precision, "fp32, or mixed precision with bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_flag("--channels-last", step.how.channels_last,
                    "Keep images and weights of convolutions with the channels of a pixel beside "
                    "each other");
  add_blocks(*command, step);
  command
      ->add_option("--link-gbit", step.link_gbit,
                   "Link rate of a node in Gbit/s, for the physical limit")
      ->check(ddp::tools::positive());
  command->add_option("--comm-hook", step.hook,
                      "Also measure this communication hook: fp16, bf16, powersgd:RANK");
  command
      ->add_option("--optimizer", step.optimizer,
                   "Use sgd, adam or adamw: ddp::optim's in our loop, libtorch's in the others "
                   "[libtorch's SGD in all]")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  command
      ->add_option(
          "--shard", step.shard,
          "Also measure a step whose ranks divide the optimizer, the gradients, the parameters, or "
          "these within nodes (hybrid), as with ddp-train --shard, and the same in Python: with "
          "ZeroRedundancyOptimizer, with FSDP2 that keeps weights after forward, or with FSDP2")
      ->check(CLI::IsMember({"optimizer", "gradients", "parameters", "hybrid"}));
  command
      ->add_option("--local-steps", step.local_steps,
                   "Also measure local steps whose parameters are averaged every N steps, as with "
                   "ddp-train --local-steps; 0 means none")
      ->check(ddp::tools::whole_number(0, 1'000'000'000))
      ->capture_default_str();
  command->add_flag("--graph", step.graph,
                    "Our step is the trainer's as a CUDA graph; our eager step is compared, too");
  command->add_flag("!--no-python", step.with_python,
                    "Skip the comparisons with Python over Gloo or NCCL");
  command->add_option("--python", step.python.interpreter, "Python interpreter with PyTorch")
      ->capture_default_str();
  command
      ->add_option("--python-ddp", step.python.ddp_arguments,
                   "Keyword arguments of Python's DistributedDataParallel, as JSON")
      ->capture_default_str();
  command
      ->add_option("--python-step", step.python.step,
                   "How Python runs a step: eager, with PyTorch's defaults; fused, with its fused "
                   "optimizer; graph, with that and the whole step as a CUDA graph; or compile, "
                   "with the fused optimizer and torch.compile()")
      ->check(CLI::IsMember({"eager", "fused", "graph", "compile"}))
      ->capture_default_str();
  return command;
}

CLI::App* add_pipeline(CLI::App& app, Options& options) {
  auto* command =
      app.add_subcommand("pipeline", "Measure the time of a training step of a model in stages");
  add_model(*command, options);
  add_blocks(*command, options.step);
  command
      ->add_option("--micro-batches", options.micro_batches,
                   "Micro-batches into which the samples of all ranks are divided")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command
      ->add_option("--stages-per-rank", options.stages_per_rank,
                   "Stages of each rank with the schedule interleaved")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command
      ->add_option("--optimizer", options.step.optimizer, "sgd, adam or adamw of ddp::optim [sgd]")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  command->add_flag("!--no-python", options.step.with_python,
                    "Skip the comparison with Python's pipelines over Gloo");
  command
      ->add_option("--python", options.step.python.interpreter, "Python interpreter with PyTorch")
      ->capture_default_str();
  command
      ->add_option("--python-step", options.step.python.step,
                   "eager, with PyTorch's default optimizer, or fused")
      ->check(CLI::IsMember({"eager", "fused"}))
      ->capture_default_str();
  return command;
}

CLI::App* add_trainer(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand(
      "trainer", "Measure what the trainer and callbacks add to a step of a loop of one's own");
  add_model(*command, options);
  add_blocks(*command, options.step);
  return command;
}

CLI::App* add_memory(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand("memory", "Measure the memory of training");
  add_model(*command, options);
  command
      ->add_option("--shard", options.step.shard,
                   "Divide the optimizer's state, the gradients or the parameters among the ranks, "
                   "as with ddp-train --shard")
      ->check(CLI::IsMember({"optimizer", "gradients", "parameters", "hybrid"}));
  command->add_flag("--plain", options.plain, "Measure only the plain loop, in this process");
  return command;
}

void add_segments(CLI::App& command, Options& options) {
  auto& limits = options.world.group.limits;
  command.add_option("--segment-kib", options.segment_kib, "Size of the segments of a message")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command.add_option("--window", limits.window, "Segments in flight per direction")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command
      .add_option("--network", options.network,
                  "Network model for choosing schedules: LATENCY:BANDWIDTH (microseconds:Gbit/s), "
                  "measure, or assume")
      ->capture_default_str();
  command.add_option("--json", options.json_file, "Also write the result to this JSON file");
}

CLI::App* add_allreduce(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand("allreduce", "Measure the speed of an all-reduce");
  command->add_option("--mib", options.allreduce.mib, "MiB of float32 on each rank")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_option("--rounds", options.allreduce.rounds, "Number of measured rounds per variant")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  add_segments(*command, options);
  return command;
}

CLI::App* add_async(CLI::App& app, Options& options) {
  auto* command =
      app.add_subcommand("async", "Compare synchronous and asynchronous training with slow ranks");
  auto& async = options.async;
  command->add_option("--staleness", async.staleness, "Staleness bounds to compare")
      ->check(ddp::tools::not_negative())
      ->capture_default_str();
  command->add_option("--epochs", async.epochs, "Epochs per run")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_option("--batch", async.batch, "Samples per rank")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_option("--lr", async.learning_rate, "Learning rate")->capture_default_str();
  command->add_option("--momentum", async.momentum, "SGD momentum")
      ->check(ddp::tools::fraction())
      ->capture_default_str();
  command->add_option("--sleep-ms", async.sleep_ms, "Delay of a slow step in milliseconds")
      ->check(ddp::tools::not_negative())
      ->capture_default_str();
  command
      ->add_option("--sleep-every", async.sleep_every, "On average one step in N is slow (random)")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_option("--json", options.json_file, "Also write the result to this JSON file");
  return command;
}

CLI::App* add_timeline(CLI::App& app, Options& options) {
  auto* command =
      app.add_subcommand("timeline", "Print when each message of one all-reduce is sent");
  command->add_option("--schedule", options.timeline.schedule, "ring, halving, doubling or chain")
      ->capture_default_str();
  command->add_option("--kib", options.timeline.kib, "KiB of float32 on each rank")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  add_segments(*command, options);
  return command;
}

CLI::App* add_ckpt(CLI::App& app, Options& options) {
  auto* command = app.add_subcommand("ckpt", "Measure the speed of checkpoints in one process");
  auto& ckpt = options.ckpt;
  command->add_option("--mib", ckpt.mib, "MiB of float32 in the checkpoint")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_option("--dir", ckpt.directory, "Directory on the file system to measure")
      ->capture_default_str();
  command->add_option("--rounds", ckpt.rounds, "Number of writes per variant")
      ->check(ddp::tools::positive())
      ->capture_default_str();
  command->add_flag("!--no-python", ckpt.with_python, "Skip torch.save, h5py and safetensors");
  command
      ->add_option("--python", ckpt.python, "Python interpreter with torch, h5py and safetensors")
      ->capture_default_str();
  command->add_option("--json", options.json_file, "Also write the result to this JSON file");
  return command;
}

// Sets the sizes that were not given, and the shape of a sample.
void shape(ddp::models::ModelOptions& model, const Options& options) {
  const auto or_default = [](std::int64_t& size, std::int64_t value) {
    if (size == 0) size = value;
  };
  if (model.name == "mlp") {
    or_default(model.width, 1024);
    or_default(model.layers, 8);
    model.input = {model.width};
  } else if (model.name == "gpt") {
    or_default(model.width, 256);
    or_default(model.layers, 4);
    or_default(model.heads, 4);
    model.input = {options.context};
    model.classes = 256;
    model.tokens = true;
  } else if (model.name == "mnist-cnn") {
    model.input = {1, 28, 28};
  } else {
    model.input = {3, options.image, options.image};
  }
  if (options.classes > 0) model.classes = options.classes;
}

void complete(Options& options) {
  auto& limits = options.world.group.limits;
  limits.segment_bytes = static_cast<std::size_t>(options.segment_kib * 1024);
  options.timeline.limits = limits;
  options.world.group.network = ddp::comm::parse_network(options.network);
  auto& buckets = options.step.buckets;
  if (options.bucket_mb > 0) {
    buckets.bytes =
        std::max<std::size_t>(static_cast<std::size_t>(options.bucket_mb * kMebibyte), 1);
    buckets.first_bytes = std::min(buckets.first_bytes, buckets.bytes);
  }
  if (options.threads > 0) torch::set_num_threads(options.threads);
  shape(options.step.model, options);
  options.step.how.bf16 = options.precision == "bf16";
  options.world.gpus = options.device == "cuda";
  if (options.world.gpus) options.world.nccl.prepare = ddp::load_cuda;
}

// Runs this program again, to measure the plain loop in a separate process.
bench::MemoryBenchOptions memory_options(const Options& options) {
  const auto& model = options.step.model;
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe"),
                                      "memory",
                                      "--plain",
                                      "--model=" + model.name,
                                      fmt::format("--width={}", model.width),
                                      fmt::format("--layers={}", model.layers),
                                      fmt::format("--context={}", options.context),
                                      fmt::format("--batch={}", options.step.batch),
                                      fmt::format("--threads={}", torch::get_num_threads())};
  return {model, options.step.batch, options.step.buckets, std::move(command), options.step.shard};
}

bench::TrainerBenchOptions trainer_options(const bench::StepBenchOptions& step) {
  return {step.model, step.batch, step.steps, step.block, step.buckets};
}

bench::PipelineBenchOptions pipeline_options(const Options& options) {
  const auto& step = options.step;
  return {.model = step.model,
          .batch = step.batch,
          .micro_batches = options.micro_batches,
          .stages_per_rank = options.stages_per_rank,
          .steps = step.steps,
          .block = step.block,
          .optimizer = step.optimizer.empty() ? "sgd" : step.optimizer,
          .with_python = step.with_python,
          .python = step.python,
          .buckets = step.buckets};
}

void report(ddp::comm::World& world, const Options& options, const json& result,
            void (*print)(const json&)) {
  if (!world.is_leader()) return;
  print(result);
  if (options.json_file.empty()) return;
  std::ofstream stream(options.json_file);
  stream << result.dump(2) << "\n";
  stream.flush();
  if (!stream) throw ddp::RuntimeError(fmt::format("cannot write {}", options.json_file));
}

int print_plain_memory(const Options& options) {
  try {
    fmt::print("{}\n", bench::measure_plain_memory(options.step.model, options.step.batch).dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-bench: {}\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Benchmarks this runtime against alternatives and the physical limit.");
  app.footer(kExamples);
  app.set_version_flag("--version", fmt::format("ddp-bench {}", ddp::kVersion));
  app.set_config("--config", "", "Read options from this file (TOML or INI)");
  app.require_subcommand(1);
  std::map<std::string, Options> of_command;
  const auto* step = add_step(app, of_command["step"]);
  const auto* trainer = add_trainer(app, of_command["trainer"]);
  const auto* pipeline = add_pipeline(app, of_command["pipeline"]);
  const auto* memory = add_memory(app, of_command["memory"]);
  const auto* allreduce = add_allreduce(app, of_command["allreduce"]);
  const auto* ckpt = add_ckpt(app, of_command["ckpt"]);
  const auto* async = add_async(app, of_command["async"]);
  add_timeline(app, of_command["timeline"]);

  const bool is_reporting_rank = ddp::comm::rank_from_environment() == 0;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    if (is_reporting_rank) fmt::print(stderr, "ddp-bench: {}; see --help\n", e.what());
    ddp::comm::let_rank_0_report();
    return 2;
  }
  Options& options = of_command.at(app.get_subcommands().front()->get_name());
  complete(options);
  if (options.plain) return print_plain_memory(options);
  return ddp::comm::run("ddp-bench", options.world, [&](ddp::comm::World& world) {
    if (const auto gpu = world.device()) options.step.how.device = ddp::cuda_device(*gpu);
    if (step->parsed()) {
      report(world, options, bench::run_step_bench(world, options.step), bench::print_step);
    } else if (trainer->parsed()) {
      report(world, options, bench::run_trainer_bench(world, trainer_options(options.step)),
             bench::print_step);
    } else if (pipeline->parsed()) {
      report(world, options, bench::run_pipeline_bench(world, pipeline_options(options)),
             bench::print_pipeline);
    } else if (memory->parsed()) {
      report(world, options, bench::run_memory_bench(world, memory_options(options)),
             bench::print_memory);
    } else if (allreduce->parsed()) {
      report(world, options, bench::run_allreduce_bench(world, options.allreduce),
             bench::print_allreduce);
    } else if (ckpt->parsed()) {
      if (world.size() > 1)
        throw ddp::UsageError(
            "ddp-bench ckpt measures a single process; run it without srun or mpirun");
      report(world, options, bench::run_ckpt_bench(options.ckpt), bench::print_ckpt);
    } else if (async->parsed()) {
      report(world, options, bench::run_async_bench(world, options.async), bench::print_async);
    } else {
      report(world, options, bench::run_timeline(world, options.timeline), bench::print_timeline);
    }
  });
}
