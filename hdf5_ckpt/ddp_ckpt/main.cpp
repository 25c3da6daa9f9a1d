// ddp-ckpt: looks into checkpoints without the program that made them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

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
    "  ddp-ckpt convert ckpt/ m.safetensors --prefix model/   weights for other programs\n\n"
    "Exit status: 0 all is well, 1 something is damaged, different or missing, 2 wrong usage.";

// What the command line asks for; `work` is set by the chosen command.
struct Request {
  tool::Output output;
  std::string path;
  std::string other;
  std::string prefix;
  bool verify = false;
  std::function<int()> work;
};

CLI::App* add_command(CLI::App& app, Request& request, const char* name, const char* description) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_flag("--json", request.output.json, "Print JSON");
  return command;
}

void add_threads(CLI::App& command, Request& request) {
  command.add_option("--threads", request.output.threads, "Threads that read")
      ->check(CLI::Range(1U, 64U))
      ->capture_default_str();
}

void add_commands(CLI::App& app, Request& request) {
  CLI::App* ls = add_command(app, request, "ls", "List the checkpoints of a directory");
  ls->add_option("ROOT", request.path, "Checkpoint directory")->required();
  ls->add_flag("--verify", request.verify,
               "Read every byte of each before saying that it is whole");
  add_threads(*ls, request);
  ls->callback([&] {
    request.work = [&] { return tool::run_ls(request.path, request.verify, request.output); };
  });

  CLI::App* show = add_command(app, request, "show", "Show what a checkpoint holds");
  show->add_option("PATH", request.path, "Checkpoint, or a directory for its newest one")
      ->required();
  show->callback(
      [&] { request.work = [&] { return tool::run_show(request.path, request.output); }; });

  CLI::App* verify = add_command(app, request, "verify", "Read every byte, name what is damaged");
  verify->add_option("PATH", request.path, "Checkpoint, or a directory for all of them")
      ->required();
  add_threads(*verify, request);
  verify->callback(
      [&] { request.work = [&] { return tool::run_verify(request.path, request.output); }; });

  CLI::App* view = app.add_subcommand(
      "view", "Make view.h5, through which h5py sees arrays whole that are stored in parts");
  view->add_option("PATH", request.path, "Checkpoint, or a directory for its newest one")
      ->required();
  view->callback([&] { request.work = [&] { return tool::run_view(request.path); }; });

  CLI::App* convert = app.add_subcommand(
      "convert", "To and from .safetensors and .pt (torch.save) files, and from HDF5");
  convert->add_option("FROM", request.path, "Checkpoint (or directory, for its newest), or a file")
      ->required();
  convert->add_option("TO", request.other, "File, or checkpoint directory, that is made")
      ->required();
  convert->add_option("--prefix", request.prefix,
                      "Only arrays whose names start so, without it; or what to put before names");
  add_threads(*convert, request);
  convert->callback([&] {
    request.work = [&] {
      return tool::run_convert(request.path, request.other, request.prefix, request.output);
    };
  });

  CLI::App* diff = add_command(app, request, "diff", "Compare two checkpoints array by array");
  diff->add_option("A", request.path, "Checkpoint, or a directory for its newest one")->required();
  diff->add_option("B", request.other, "The same")->required();
  add_threads(*diff, request);
  diff->callback([&] {
    request.work = [&] { return tool::run_diff(request.path, request.other, request.output); };
  });
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-ckpt");
  Request request;
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("ddp-ckpt ") + ddp::kVersion);
  app.set_config("--config", "", "Read options from a file");
  app.require_subcommand(1);
  add_commands(app, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return request.work();
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
