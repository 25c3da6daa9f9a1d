// ddp-ckpt: looks into checkpoints without the program that made them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "hdf5_ckpt/ddp_ckpt/commands.h"
#include "slurm_ddp/version.h"

namespace {

namespace tool = ddp::ckpt::tool;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kDescription =
    "Looks into checkpoints of slurm-ddp.\n\n"
    "A checkpoint is a folder step-00012345 with a manifest.json, which says what it holds and\n"
    "carries the checksums of all of it, and HDF5 files, which h5py reads as named arrays. It\n"
    "exists whole or not at all; what is damaged later is found by its checksums.";

constexpr const char* kExamples =
    "Examples:\n"
    "  ddp-ckpt ls ckpt/                        what is there\n"
    "  ddp-ckpt verify ckpt/                    is all of it still readable?\n"
    "  ddp-ckpt show ckpt/step-00001000         names, shapes and state of one\n"
    "  ddp-ckpt show ckpt/                      the same of the newest\n"
    "  ddp-ckpt diff ckpt/step-00001000 other/  do two runs agree to the bit?\n"
    "  ddp-ckpt view ckpt/step-00001000         one file for h5py, in spite of parts\n"
    "  ddp-ckpt convert ckpt/ m.safetensors --prefix model/   weights for other programs\n"
    "  ddp-ckpt rollback ckpt/step-00001000     resume from there, later ones set aside\n"
    "  ddp-ckpt clean ckpt/ --older-than 1d     remove what interrupted saves have left\n\n"
    "Exit status: 0 all is well, 1 something is damaged, different or missing, 2 wrong usage.";

// What the command line asks of one command. Each has its own: a file for --config sets options of
// all commands, whichever is run.
struct Request {
  tool::Output output;
  std::string path;
  std::string other;
  std::string prefix;
  bool verify = false;
  tool::Cleaning cleaning;
};

using Work = std::function<int()>;  // of the chosen command

// A command whose options go to `request` and that does `run(*request)`.
template <class Run>
CLI::App& add_command(CLI::App& app, Work& work, const char* name, const char* description,
                      const std::shared_ptr<Request>& request, Run run) {
  CLI::App* command = app.add_subcommand(name, description);
  command->callback([&work, request, run] {
    work = [request, run] {
      try {
        return run(*request);
      } catch (const std::exception& error) {
        // Who reads JSON finds it also when there is nothing else to say.
        if (request->output.json)
          fmt::print("{}\n", nlohmann::json{{"error", error.what()}}.dump(
                                 1, ' ', true, nlohmann::json::error_handler_t::replace));
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
  command.add_option("--threads", request.output.threads, "Threads that read")
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
              "Read every byte of each before saying that it is whole");
  add_threads(ls, *request);
}

void add_show(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& show = add_command(app, work, "show", "Show what a checkpoint holds", request,
                               [](Request& r) { return tool::run_show(r.path, r.output); });
  add_json(show, *request);
  show.add_option("PATH", request->path, "Checkpoint, or a directory for its newest one")
      ->required();
}

void add_verify(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& verify =
      add_command(app, work, "verify", "Read every byte, name what is damaged", request,
                  [](Request& r) { return tool::run_verify(r.path, r.output); });
  add_json(verify, *request);
  verify.add_option("PATH", request->path, "Checkpoint, or a directory for all of them")
      ->required();
  add_threads(verify, *request);
}

void add_view(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& view =
      add_command(app, work, "view",
                  "Make view.h5, through which h5py sees arrays whole that are stored in parts",
                  request, [](Request& r) { return tool::run_view(r.path); });
  view.add_option("PATH", request->path, "Checkpoint, or a directory for its newest one")
      ->required();
}

void add_convert(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& convert = add_command(
      app, work, "convert", "To and from .safetensors and .pt (torch.save) files, and from HDF5",
      request, [](Request& r) { return tool::run_convert(r.path, r.other, r.prefix, r.output); });
  convert.add_option("FROM", request->path, "Checkpoint (or directory, for its newest), or a file")
      ->required();
  convert.add_option("TO", request->other, "File, or checkpoint directory, that is made")
      ->required();
  convert.add_option("--prefix", request->prefix,
                     "Only arrays whose names start so, without it; or what to put before names");
  add_threads(convert, *request);
}

void add_diff(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& diff =
      add_command(app, work, "diff", "Compare two checkpoints array by array", request,
                  [](Request& r) { return tool::run_diff(r.path, r.other, r.output); });
  add_json(diff, *request);
  diff.add_option("A", request->path, "Checkpoint, or a directory for its newest one")->required();
  diff.add_option("B", request->other, "The same")->required();
  add_threads(diff, *request);
}

// "90", "15m", "36h" or "7d"; seconds without a unit.
std::chrono::seconds duration_of(const std::string& text) {
  const std::map<char, long long> units = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  constexpr long long kMost = 1'000'000'000;
  long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const bool known = unit.empty() || (unit.size() == 1 && units.contains(unit[0]));
  if (error != std::errc() || !known || number < 0 || number > kMost)
    throw CLI::ValidationError("--older-than",
                               fmt::format("takes 90, 15m, 36h or 7d, not '{}'", text));
  return std::chrono::seconds(number * (unit.empty() ? 1 : units.at(unit[0])));
}

void add_clean(CLI::App& app, Work& work) {
  const auto request = std::make_shared<Request>();
  CLI::App& clean =
      add_command(app, work, "clean", "Remove what interrupted saves have left", request,
                  [](Request& r) { return tool::run_clean(r.path, r.cleaning); });
  clean.add_option("ROOT", request->path, "Checkpoint directory; no run may be saving there")
      ->required();
  clean.add_flag("--set-aside", request->cleaning.set_aside,
                 "Also checkpoints that a rollback has set aside, and damaged ones that were "
                 "replaced");
  clean
      .add_option_function<std::string>(
          "--older-than",
          [request](const std::string& text) { request->cleaning.older_than = duration_of(text); },
          "Only what nobody has written to for so long: 90 (seconds), 15m, 36h or 7d")
      ->default_str("0");
  clean.add_flag("--dry-run", request->cleaning.dry_run, "Only say what would be removed");
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
  Work work;
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("ddp-ckpt ") + ddp::kVersion);
  app.set_config("--config", "", "Read options from a file");
  app.require_subcommand(1);
  for (const auto add :
       {add_ls, add_show, add_verify, add_view, add_convert, add_diff, add_clean, add_rollback})
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
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-ckpt: {}\n", error.what());
    return kFailed;
  }
}
