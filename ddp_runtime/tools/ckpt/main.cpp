// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt: inspects checkpoints without the program that wrote them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "ddp_runtime/tools/help_lines.h"
#include "slurm_ddp/version.h"

namespace {

namespace tool = ddp::ckpt::tool;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kDescription =
    "Lists, verifies, compares and converts checkpoints of slurm-ddp, and seals those of "
    "others.\n\n"
    "A checkpoint is a directory step-00012345 with HDF5 files, which h5py reads as named arrays,\n"
    "and a manifest.json with the checksums of all of them. A save is atomic;\n"
    "later damage is found by the checksums.";

constexpr const char* kExamples =
    "Examples:\n"
    "  ddp-ckpt ls ckpt/                        list the checkpoints\n"
    "  ddp-ckpt verify ckpt/                    read and check every byte\n"
    "  ddp-ckpt seal out/checkpoint-500         of any program: say that it is complete\n"
    "  ddp-ckpt watch out/ &                    of any program: seal what a job saves\n"
    "  ddp-ckpt newest out/                     of any program: the one to resume from\n"
    "  ddp-ckpt show ckpt/step-00001000         names, shapes and state of a checkpoint\n"
    "  ddp-ckpt show ckpt/                      the same for the newest checkpoint\n"
    "  ddp-ckpt diff ckpt/step-00001000 other/  are two runs bitwise equal?\n"
    "  ddp-ckpt view ckpt/step-00001000         one file for h5py, even if stored in parts\n"
    "  ddp-ckpt convert ckpt/ m.safetensors --prefix model/   weights for other programs\n"
    "  ddp-ckpt inspect weights.pt              what convert would find in a file\n"
    "  ddp-ckpt rollback ckpt/step-00001000     resume from here; set later ones aside\n"
    "  ddp-ckpt clean ckpt/ --older-than 1d     remove leftovers of interrupted saves\n\n"
    "Exit status: 0 success, 1 data is damaged, different or missing, 2 usage error.";

// The options of one command. Each command stores its options separately, because a --config file
// sets the options of all commands.
struct Request {
  tool::Output output;
  std::string path;
  std::string other;
  std::vector<std::string> paths;
  tool::Conversion conversion;
  bool verify = false;
  tool::Cleaning cleaning;
  std::chrono::seconds quiet{10};
};

using Work = std::function<int()>;  // runs the chosen command

// A command whose options are stored in `request` and that runs `run(*request)`.
template <class Run>
CLI::App& add_command(CLI::App& app, Work& work, const char* name, const char* description,
                      const std::shared_ptr<Request>& request, Run run) {
  CLI::App* command = app.add_subcommand(name, description);
  command->callback([&work, request, run] {
    work = [request, run] {
      try {
        return run(*request);
      } catch (const std::exception& error) {
        // Prints valid JSON even if the command fails, for programs that parse it.
        if (request->output.json)
          fmt::print("{}\n", tool::json_text(nlohmann::json{{"error", error.what()}}));
        throw;
      }
    };
  });
  return *command;
}

void add_json(CLI::App& command, Request& request) {
  command.add_flag("--json", request.output.json, "Print JSON");
}

void add_threads(CLI::App& command, Request& request) {
  command.add_option("--threads", request.output.threads, "Number of reading threads")
      ->check(CLI::Range(1U, 64U))
      ->capture_default_str();
}

void add_ls(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& ls = add_command(app, work, "ls", "List the checkpoints of a directory", request,
                             [](Request& r) { return tool::run_ls(r.path, r.verify, r.output); });
  add_json(ls, *request);
  ls.add_option("ROOT", request->path, "Checkpoint directory")->required();
  ls.add_flag("--verify", request->verify,
              "Read every byte of each checkpoint before calling it complete");
  add_threads(ls, *request);
}

void add_show(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& show = add_command(app, work, "show", "Show the contents of a checkpoint", request,
                               [](Request& r) { return tool::run_show(r.path, r.output); });
  add_json(show, *request);
  show.add_option("PATH", request->path, "Checkpoint, or a directory for its newest one")
      ->required();
}

void add_verify(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& verify =
      add_command(app, work, "verify", "Read every byte and report damaged data", request,
                  [](Request& r) { return tool::run_verify(r.path, r.output); });
  add_json(verify, *request);
  verify.add_option("PATH", request->path, "Checkpoint, or a directory for all of them")
      ->required();
  add_threads(verify, *request);
}

void add_seal(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& seal =
      add_command(app, work, "seal", "Seal a complete checkpoint of any program, for newest",
                  request, [](Request& r) { return tool::run_seal(r.paths, r.output); });
  add_json(seal, *request);
  seal.add_option("PATH", request->paths, "Directory or file that all ranks have saved")
      ->required();
  add_threads(seal, *request);
}

void add_watch(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& watch =
      add_command(app, work, "watch", "Seal what a running job saves, until SIGTERM", request,
                  [](Request& r) { return tool::run_watch(r.path, r.quiet, r.output); });
  watch.add_option("ROOT", request->path, "Directory that holds the checkpoints, now or later")
      ->required();
  watch
      .add_option_function<unsigned>(
          "--quiet",
          [request](unsigned seconds) { request->quiet = std::chrono::seconds(seconds); },
          "Seconds without a change, after which a finished checkpoint is sealed")
      ->check(CLI::Range(1U, 3600U))
      ->default_str("10");
  add_threads(watch, *request);
}

void add_newest(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& newest =
      add_command(app, work, "newest", "Print the newest whole checkpoint, of any program", request,
                  [](Request& r) { return tool::run_newest(r.path, r.output); });
  add_json(newest, *request);
  newest
      .add_option("ROOT", request->path,
                  "Directory that holds the checkpoints; prints nothing if there are none yet")
      ->required();
  add_threads(newest, *request);
}

void add_view(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& view = add_command(
      app, work, "view", "Write view.h5, in which h5py sees arrays stored in parts as whole arrays",
      request, [](Request& r) { return tool::run_view(r.path); });
  view.add_option("PATH", request->path, "Checkpoint, or a directory for its newest one")
      ->required();
}

void add_convert(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& convert = add_command(
      app, work, "convert",
      "Convert to and from .safetensors and .pt (torch.save) files, and from HDF5", request,
      [](Request& r) { return tool::run_convert(r.path, r.other, r.conversion, r.output); });
  convert
      .add_option("FROM", request->path,
                  "Checkpoint (or directory, for its newest), a file, or a model's directory or "
                  "index of several files")
      ->required();
  convert.add_option("TO", request->other, "File or new checkpoint directory to write")->required();
  convert.add_option("--prefix", request->conversion.prefix,
                     "To a file: convert only arrays with this prefix, and remove it; to a "
                     "checkpoint: add it. average/: the weights that a run with --ema evaluates");
  convert.add_option("--only", request->conversion.only,
                     "Convert only these arrays: names separated by commas, where * stands for any "
                     "text");
  convert.add_option("--skip", request->conversion.skip, "Leave these arrays out");
  convert.add_option("--map", request->conversion.map,
                     "From a checkpoint: the names of another program, gpt2 or a file of rules as "
                     "for ddp-train --init-map");
  add_threads(convert, *request);
}

void add_diff(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& diff =
      add_command(app, work, "diff", "Compare two checkpoints array by array", request,
                  [](Request& r) { return tool::run_diff(r.path, r.other, r.output); });
  add_json(diff, *request);
  diff.add_option("A", request->path, "Checkpoint, or a directory for its newest one")->required();
  diff.add_option("B", request->other,
                  "The checkpoint to compare with, or a directory for its newest one")
      ->required();
  add_threads(diff, *request);
}

void add_inspect(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& inspect = add_command(
      app, work, "inspect", "List what convert would find in a file, without converting it",
      request, [](Request& r) { return tool::run_inspect(r.path, r.output); });
  add_json(inspect, *request);
  inspect.add_option("PATH", request->path, "File, index or directory of another program")
      ->required();
}

// "90", "15m", "36h" or "7d"; seconds without a unit.
std::chrono::seconds duration_of(const std::string& text) {
  const std::map<char, long long> units = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  constexpr long long kMax = 1'000'000'000;
  long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const bool known = unit.empty() || (unit.size() == 1 && units.contains(unit[0]));
  if (error != std::errc() || !known || number < 0 || number > kMax)
    throw CLI::ValidationError("--older-than",
                               fmt::format("takes 90, 15m, 36h or 7d, not '{}'", text));
  return std::chrono::seconds(number * (unit.empty() ? 1 : units.at(unit[0])));
}

void add_clean(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& clean =
      add_command(app, work, "clean", "Remove leftovers of interrupted saves", request,
                  [](Request& r) { return tool::run_clean(r.path, r.cleaning); });
  clean.add_option("ROOT", request->path, "Checkpoint directory; no run may be saving there")
      ->required();
  clean.add_flag("--set-aside", request->cleaning.set_aside,
                 "Also remove checkpoints set aside by a rollback, and damaged ones that were "
                 "replaced");
  clean
      .add_option_function<std::string>(
          "--older-than",
          [request](const std::string& text) { request->cleaning.older_than = duration_of(text); },
          "Remove only files not written to for this long: 90 (seconds), 15m, 36h or 7d")
      ->default_str("0");
  clean.add_flag("--dry-run", request->cleaning.dry_run,
                 "Print what would be removed, without removing it");
}

void add_rollback(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& rollback = add_command(app, work, "rollback", "Make an older checkpoint the newest one",
                                   request, [](Request& r) { return tool::run_rollback(r.path); });
  rollback
      .add_option("STEP", request->path,
                  "Checkpoint; later ones of its directory are set aside, not deleted")
      ->required();
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-ckpt");
  ddp::tools::keep_help_lines(app);
  Work work;
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("ddp-ckpt ") + ddp::kVersion);
  app.set_config("--config", "", "Read options from a file");
  app.require_subcommand(1);
  for (const auto add : {add_ls, add_show, add_verify, add_seal, add_watch, add_newest, add_view,
                         add_convert, add_inspect, add_diff, add_clean, add_rollback})
    add(app, work);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return work();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    // A script that reads nothing must not take that for an answer.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::runtime_error("cannot write the output");
    return status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-ckpt: {}\n", error.what());
    return kFailed;
  }
}
