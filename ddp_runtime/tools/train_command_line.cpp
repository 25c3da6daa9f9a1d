// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/train_command_line.h"
#include "ddp_runtime/comm/group/launcher_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/failure/liveness.h"
#include "ddp_runtime/tools/help_lines.h"
#include "ddp_runtime/tools/train_settings.h"
#include "ddp_runtime/tools/validators.h"
#include "ddp_runtime/train/options/option_limits.h"
#include "slurm_ddp/version.h"

namespace ddp::tools {
namespace {

constexpr std::uint64_t kMaxThreads = 4096;
constexpr std::uint64_t kMaxContext = 1'000'000'000;
constexpr std::uint64_t kMaxStages = 100'000;

constexpr const char* kExamples = R"(Examples:
  ddp-train --model mlp --data digits --epochs 20
      Train on one process with the handwritten digits that are included.
  srun --mpi=pmix --ddp -N2 --ntasks-per-node=2 ddp-train --model mnist-cnn --data mnist:/data/mnist --scale-lr --warmup 100
      Train on four ranks of two nodes; --batch is per rank.
  srun --mpi=pmix --ddp -N2 --ntasks-per-node=2 ddp-train --checkpoint-dir ckpt --resume auto --report-dir report
      Resume from the latest complete checkpoint in ckpt, if there is one. See also ddp-report.
  ddp-train --model resnet50 --data cifar10:DIR --init-from resnet50.safetensors --init-map torchvision-resnet --init-skip conv1.weight,'fc.*'
      Fine-tune torchvision's weights on small images of other classes.
  srun --mpi=pmix --ddp -N2 --ntasks-per-node=2 ddp-train --config gpt.ini --data text:book.txt --dry-run
      Run one step as a smoke test. share/slurm-ddp/configs has a file for each model.)";

void add_training_options(CLI::App& app, TrainCommandLine& c) {
  auto& t = c.train;
  app.option_defaults()->group("Training");
  app.add_option("--epochs", t.epochs,
                 "Epochs to train [with --steps, as many as needed; otherwise 1]")
      ->check(whole_number(1, train::kMaxEpochs));
  app.add_option("--steps", t.steps, "Stop after this many optimizer steps; 0 means no limit")
      ->check(whole_number(0, train::kMaxSteps))
      ->capture_default_str();
  app.add_option("--batch", t.batch, "Samples per rank and micro-batch")
      ->check(whole_number(1, train::kMaxBatch))
      ->capture_default_str();
  app.add_option("--global-batch", t.global_batch,
                 "Samples per optimizer step over all ranks, instead of --batch: any number of "
                 "ranks that divides it trains the same; 0 means --batch counts")
      ->check(whole_number(0, train::kMaxGlobalBatch))
      ->capture_default_str();
  app.add_option("--blocks", t.blocks,
                 "Divide the --global-batch into this many micro-batches, of which a rank computes "
                 "an equal part, so that any number of ranks that divides it trains the same, "
                 "dropout included; 12, 24, 60 and 120 have many divisors; 0 means no fixed number")
      ->check(whole_number(0, train::kMaxBlocks))
      ->capture_default_str();
  app.add_option("--accumulate", t.micro_batches,
                 "Micro-batches per optimizer step (gradient accumulation)")
      ->check(whole_number(1, train::kMaxBatch))
      ->capture_default_str();
  app.add_option("--lr", t.optimizer.learning_rate, "Learning rate; see --scale-lr")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--optimizer", t.optimizer.name, "sgd, adam or adamw")->capture_default_str();
  app.add_option("--momentum", t.optimizer.momentum, "SGD momentum")
      ->check(fraction())
      ->capture_default_str();
  app.add_option("--weight-decay", t.optimizer.weight_decay,
                 "L2 penalty; with adamw, decoupled weight decay")
      ->check(not_negative())
      ->capture_default_str();
  app.add_flag("--scale-lr", t.scale_learning_rate,
               "Multiply the learning rate by ranks x --accumulate (linear scaling rule)");
  app.add_option("--warmup", t.warmup_steps, "Steps of linear learning-rate warm-up")
      ->check(whole_number(0, train::kMaxSteps))
      ->capture_default_str();
  app.add_option("--schedule", c.schedule,
                 "Learning-rate schedule after the warm-up: constant, step or cosine")
      ->capture_default_str();
  app.add_option("--decay-every", t.decay_epochs, "Epochs between decays (--schedule step)")
      ->check(whole_number(1, train::kMaxEpochs))
      ->capture_default_str();
  app.add_option("--decay-factor", t.decay_factor, "Decay factor (--schedule step)")
      ->check(fraction())
      ->capture_default_str();
  app.add_option("--clip", t.clip_norm, "Clip gradients to this global norm; 0 means no clipping")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--precision", c.precision, "fp32, or mixed precision with bf16 or fp16")
      ->capture_default_str();
  app.add_option("--param-type", c.param_type,
                 "fp32, or bf16: keep weights in bf16, and fp32 masters of them in the optimizer "
                 "(needs --precision bf16)")
      ->capture_default_str();
  app.add_option("--loss-scale", t.loss_scale,
                 "Initial loss scale; 0 means 65536 with fp16, no loss scaling otherwise")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--on-nan", c.on_nan,
                 "Action if a loss or gradient is not finite: stop, or skip the update")
      ->capture_default_str();
  app.add_option(
         "--graph", c.graph,
         "Replay whole steps as a CUDA graph, which saves the launches of their kernels: "
         "off; auto, if nothing hinders it, such as --accumulate; or on, to make a hindrance "
         "an error")
      ->capture_default_str();
  app.add_option("--shard", c.shard,
                 "What to shard across the ranks: none; optimizer: its state and its work; "
                 "gradients: also the gradients; parameters: also the weights, which are gathered "
                 "one block at a time (mlp and gpt); hybrid: all of these, but within each node, "
                 "whose ranks have the weights once, in shared memory (on GPUs, as parameters)")
      ->capture_default_str();
  app.add_flag("--keep-after-forward", c.keep_after_forward,
               "With --shard parameters, or hybrid on GPUs: keep blocks whole from forward to "
               "backward, which needs "
               "memory for the whole model but gathers each block once per step instead of twice");
  app.add_flag(
      "--reduce-once", t.reduce_once,
      "With --accumulate and --shard gradients, parameters or hybrid: keep whole gradients "
      "until the last micro-batch and reduce their sum, which needs memory for the "
      "gradients of the whole model but sends them once per step instead of once per "
      "micro-batch");
  app.add_option(
         "--stages", t.stages.ranks,
         "Cut the model into stages, which this many ranks share as a pipeline; --accumulate "
         "is the number of micro-batches on which they work at the same time; 1 means no "
         "pipeline")
      ->check(whole_number(1, kMaxStages))
      ->capture_default_str();
  app.add_option(
      "--pipeline-schedule", c.pipeline_schedule,
      "The order of a rank's work with --stages: gpipe; 1f1b, which keeps less in memory; "
      "or interleaved, which waits less [1f1b; interleaved with --chunks]");
  app.add_option("--chunks", t.stages.chunks,
                 "Stages on each rank with --pipeline-schedule interleaved")
      ->check(whole_number(1, kMaxStages))
      ->capture_default_str();
  app.add_option(
      "--stage-balance", c.stage_balance,
      "How --stages divides the pieces of the model: parameters, equally; time, which is "
      "measured before the first step; or the number of pieces of each stage, such as "
      "3,4,4,3 [parameters]");
  app.add_option("--offload-optimizer", c.offload,
                 "Where to keep the optimizer's state: on CPUs a directory on a local disk of each "
                 "node, such as /local/scratch, for files that vanish with the run; on GPUs the "
                 "word host, for its memory");
  app.add_flag("--channels-last", t.channels_last,
               "Keep images and weights of convolutions with the channels of a pixel beside each "
               "other, the order in which GPUs and recent CPUs convolve");
  app.add_option("--ema", t.ema_decay,
                 "Decay, such as 0.999, of an average of the weights that evaluations use and "
                 "checkpoints hold beside the weights; 0 means no average")
      ->check(
          number_check("a number from 0 to less than 1", [](double v) { return v >= 0 && v < 1; }))
      ->capture_default_str();
  app.add_option("--patience", t.patience,
                 "Stop after this many epochs without a better evaluation; 0 means never")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--seed", t.seed, "Random seed for initialization, sample order and dropout")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
}

void add_run_options(CLI::App& app, TrainCommandLine& c) {
  auto& t = c.train;
  app.option_defaults()->group("Run");
  app.add_option("--device", c.device, "cpu or cuda: where the model is trained")
      ->capture_default_str();
  app.add_option(
         "--backend", c.backend,
         "How gradients travel: mpi, tcp, or nccl for GPUs; auto takes nccl for GPUs that ranks "
         "do not share, and else mpi, or tcp if no process manager connects the ranks; mpi and "
         "tcp send GPU memory through the host")
      ->capture_default_str();
  app.add_option("--bucket-mb", c.bucket_mb,
                 "Size of gradient buckets in MiB (default: 4 on CPUs, 25 on GPUs)")
      ->check(size_in_mib());
  app.add_option(
         "--comm-hook", c.comm_hook,
         "Gradient compression: off, fp16, bf16, bf16-fp32, powersgd or powersgd:RANK; noop sends "
         "nothing (for measuring only)")
      ->capture_default_str();
  app.add_option("--reduce-type", c.reduce_type,
                 "The type in which gradients are sent and added up: bf16 halves the bytes of fp32 "
                 "gradients; fp32 adds up those of bf16 weights more exactly; auto: the type that "
                 "they have")
      ->capture_default_str();
  app.add_flag(
      "--deterministic", c.deterministic,
      "Add gradients in rank order, so that results do not depend on network, placement or bucket "
      "size, and equal those of one rank with --accumulate; with --blocks, they do not depend on "
      "the number of ranks either");
  app.add_option("--staleness", t.staleness,
                 "Train asynchronously: a rank may be this many steps ahead of the slowest one "
                 "(sgd only) [synchronous]")
      ->check(whole_number(0, train::kMaxStaleness));
  add_local_steps_options(app, c.local_steps);
  app.add_option(
         "--network", c.network,
         "Network model for choosing collective schedules: LATENCY:BANDWIDTH "
         "(microseconds:Gbit/s), measure, or assume (bitwise identical results in every run)")
      ->capture_default_str();
  app.add_flag("--allow-unused", t.parallel.allow_unused,
               "Allow parameters that do not contribute to some losses");
  app.add_option("--check-parameters", t.parallel.check_parameters_every,
                 "Compare a checksum of the parameters over all ranks every N steps and before "
                 "checkpoints, and stop if they differ; 0 means never")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--failure-dump", c.failure_dump,
                 "File for the state of all ranks at a failure, written by rank 0 [failure.json in "
                 "--report-dir]");
  app.add_option(
         "--timeout", c.timeout_seconds,
         "Seconds that a collective may take before the run stops and names the rank it waits for")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--start-timeout", c.start_timeout_seconds, "Seconds to connect all ranks")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--silence", c.silence_seconds,
                 "Seconds of silence before a rank that others wait for is declared lost; if a "
                 "debugger stops a rank, raise this and --timeout")
      ->check(at_least_one())
      ->capture_default_str();
  app.add_option("--threads", c.threads, "Compute threads per rank; 0 means OMP_NUM_THREADS")
      ->check(whole_number(0, kMaxThreads))
      ->capture_default_str();
  app.add_option("--workers", t.loader_threads, "Data loader threads per rank")
      ->check(whole_number(1, train::kMaxLoaderThreads))
      ->capture_default_str();
  app.add_option("--checkpoint-dir", t.checkpoint.directory,
                 "Directory for checkpoints [no checkpoints]")
      ->check(not_empty());
  app.add_option("--checkpoint-local", t.checkpoint.local_directory,
                 "Directory on a disk of each node, such as /local/scratch: checkpoints are saved "
                 "there first, and copied to --checkpoint-dir while training continues")
      ->check(not_empty());
  app.add_option(
         "--checkpoint-every", c.checkpoint_every,
         "Save every N steps, every epoch, after a time of training such as 90s, 10min or 1h30min, "
         "or auto: at Young's interval, which minimizes the time lost to saves and "
         "failures, from the measured cost of a save and --mtbf")
      ->capture_default_str();
  app.add_option("--checkpoint-memory", c.checkpoint_memory,
                 "Also copy the state to the memory of the nodes every N steps, after a time of "
                 "training such as 30s, or auto (Young's interval), for a restart by ddp-run [no "
                 "copies]");
  app.add_option("--mtbf", c.mtbf,
                 "Mean time between failures of the whole job, such as 6h or 2d, for the two "
                 "options above with auto [6334h divided by the number of nodes]");
  app.add_option("--checkpoint-copy-mb", c.checkpoint_copy_mb,
                 "Limit in MiB per rank for the copy that is saved in the background; a larger "
                 "state is saved before the next step")
      ->check(size_in_mib_or_zero())
      ->capture_default_str();
  app.add_option("--checkpoint-share-mb", c.checkpoint_share_mb,
                 "Split a checkpoint over several ranks if each writes at least this many MiB")
      ->check(size_in_mib())
      ->capture_default_str();
  app.add_option("--keep-last", t.checkpoint.keep_last,
                 "Number of checkpoints to keep, besides those of --keep-every and --keep-best")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--keep-every", c.keep_every,
                 "Also save every N steps, or Nepochs (such as 5epochs), and keep these "
                 "checkpoints for good");
  app.add_flag("--keep-best", t.checkpoint.keep_best,
               "Also keep the checkpoint with the best evaluation, in best/ of --checkpoint-dir");
  app.add_option("--best-metric", t.checkpoint.best_metric,
                 "The value of an evaluation that decides which is better for --keep-best and "
                 "--patience: loss (lower) or accuracy (higher)")
      ->capture_default_str();
  app.add_option("--after-save", t.checkpoint.after_save,
                 "Shell command that rank 0 runs in the background after each checkpoint, for "
                 "example to upload it; SLURM_DDP_CHECKPOINT and SLURM_DDP_STEP are in its "
                 "environment, and its output is in after-save.log of --checkpoint-dir");
  app.add_option("--after-save-limit", c.after_save_limit,
                 "Time after which a command of --after-save is killed; the end of the run waits "
                 "at most this long for the last one")
      ->capture_default_str();
  app.add_option(
         "--resume", t.checkpoint.resume,
         "auto: resume from the latest complete checkpoint in --checkpoint-dir, if any; never; or "
         "the directory of a checkpoint to start from, unless this run has already saved a "
         "newer one")
      ->check(not_empty())
      ->capture_default_str();
  app.add_flag("--resume-changed", t.checkpoint.resume_changed,
               "Resume in the middle of an epoch even if the seed or the data changed");
  app.add_option("--report-dir", t.report_directory,
                 "Directory for run.json, steps.csv and trace.json")
      ->check(not_empty());
  app.add_flag(
      "--dry-run", t.dry_run,
      "Build everything and run one step and a short evaluation; write nothing. Prints what "
      "each strategy of --shard costs");
  app.add_flag(
         "--evaluate-only", t.evaluate_only,
         "Only evaluate the weights of --resume PATH, the newest ones in --checkpoint-dir, or "
         "those of --init-from, and with --ema their average; train and write nothing")
      ->excludes("--dry-run");
  app.add_option("--log-every", t.log_every_steps,
                 "Also log every N steps; 0 means only once per epoch")
      ->check(not_negative())
      ->capture_default_str();
}

void add_model_options(CLI::App& app, TrainCommandLine& c) {
  app.option_defaults()->group("Model and data");
  app.add_option("--model", c.model.name, models::model_names())->capture_default_str();
  app.add_option("--data", c.data,
                 "digits, mnist:DIR, cifar10:DIR, text:FILE, hdf5:FILE (datasets x and y) or "
                 "synthetic")
      ->capture_default_str();
  app.add_option("--augment", c.augment,
                 "Augmentation of training images: none, crop, flip or crop+flip")
      ->capture_default_str();
  app.add_option("--width", c.model.width,
                 "Units or channels per layer; 0 means the model's default")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--layers", c.model.layers, "Layers of mlp or gpt; 0 means the model's default")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--heads", c.model.heads, "Attention heads of gpt; 0 means the model's default")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--context", c.data_options.context, "Context length of gpt in bytes")
      ->check(whole_number(1, kMaxContext))
      ->capture_default_str();
  app.add_flag("--checkpoint-activations", c.model.checkpoint_activations,
               "gpt: recompute the activations of a block in backward instead of storing them");
}

void add_fine_tuning_options(CLI::App& app, TrainCommandLine& c) {
  auto& init = c.init;
  app.option_defaults()->group("Fine-tuning");
  app.add_option("--init-from", init.from,
                 "Weights to start from, unless the run resumes: a checkpoint, a directory of "
                 "checkpoints, or a file of safetensors or torch.save (which is never executed)")
      ->check(not_empty());
  app.add_option(
      "--init-map", init.map,
      "Names in that file: gpt2, torchvision-resnet, or a file with lines THEIRS -> OURS "
      "(docs/fine_tuning.md)");
  app.add_option(
      "--init-prefix", init.prefix,
      "Take only arrays whose names start with this, and remove it from them [model/ for "
      "a checkpoint, nothing for a file]");
  app.add_option("--init-only", init.only,
                 "Take only these tensors of the model: names separated by commas, where * stands "
                 "for any text");
  app.add_option("--init-skip", init.skip,
                 "Do not take these tensors, such as a head for other classes: 'fc.*'");
  app.add_option("--init-strict", init.strict,
                 "all: model and file must have the same tensors, apart from those left out; "
                 "matching: take those whose names and shapes match")
      ->capture_default_str();
  app.add_option("--freeze", c.freeze,
                 "Do not train these parameters: names separated by commas, where * stands for any "
                 "text");
}

// Creates the directory before anything can fail, so that failure.json can be written there. If
// this fails, the trainer reports it to all ranks.
void make_report_directory(const std::filesystem::path& directory) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
}

}  // namespace

std::variant<TrainCommandLine, NoRun> read_train_command_line(
    const std::vector<std::string>& arguments) {
  TrainCommandLine c;
  CLI::App app("Trains a model with data parallelism: alone, under mpirun, or under srun --ddp.",
               "ddp-train");
  keep_help_lines(app);
  app.footer(kExamples);
  app.set_version_flag("--version", fmt::format("ddp-train {}", kVersion));
  app.set_config("--config", "", "Read options from a file (name=value lines)");
  // If an option is repeated, the last value counts, so that users can override the defaults of a
  // job script.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_model_options(app, c);
  add_fine_tuning_options(app, c);
  add_training_options(app, c);
  add_run_options(app, c);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    interpret(c);
    static_cast<void>(world_options_of(c));  // throws for unusable options
    return c;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return NoRun{2, fmt::format("{}; see --help", e.what())};
    std::ostringstream text;
    app.exit(e, text, text);
    return NoRun{0, text.str()};
  } catch (const UsageError& e) {
    return NoRun{2, e.what()};
  }
}

std::optional<int> parse_train_command_line(int argc, char** argv, TrainCommandLine& line) {
  const bool reports = comm::rank_from_environment() == 0;  // all ranks have the same command line
  auto read = read_train_command_line(std::vector<std::string>(argv + 1, argv + argc));
  if (auto* found = std::get_if<TrainCommandLine>(&read)) {
    line = std::move(*found);
    line.text = fmt::format("{}", fmt::join(std::vector<std::string>(argv, argv + argc), " "));
    if (reports && !line.train.report_directory.empty()) {
      make_report_directory(line.train.report_directory);
    }
    return std::nullopt;
  }
  const auto& [exit_code, text] = std::get<NoRun>(read);
  if (exit_code == 0) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (reports) fmt::print(stderr, "ddp-train: {}\n", text);
  comm::let_rank_0_report();
  return exit_code;
}

}  // namespace ddp::tools
