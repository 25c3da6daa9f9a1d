// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/check_outputs.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/host.h"
#include "base/hostlist.h"
#include "ddp_runtime/check/findings/operations.h"
#include "ddp_runtime/report/render/check_page.h"
#include "ddp_runtime/tools/check/distinct_files.h"
#include "ddp_runtime/tools/check/drain_nodes.h"
#include "slurm_ddp/version.h"

namespace ddp::tools {
namespace {

// Runs all steps even if an earlier one fails, then reports the first failure.
class FirstError {
 public:
  template <class Action>
  void keep(const Action& action) {
    try {
      action();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

std::string text_of(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The files that --out writes. exclude.txt is for `sbatch --exclude`, good_hostlist.txt for `srun
// --nodelist`.
constexpr std::array kFilesOfDirectory{"verdict.json", "events.jsonl", "report.md",
                                       "report.html",  "exclude.txt",  "good_hostlist.txt"};

std::vector<std::string> files_of_directory(const CheckOutputs& outputs) {
  std::vector<std::string> files;
  if (outputs.directory.empty()) return files;
  for (const char* name : kFilesOfDirectory) files.push_back(outputs.directory + "/" + name);
  return files;
}

void write_directory(const check::Verdict& verdict, const nlohmann::json& json, double now,
                     const CheckOutputs& outputs) {
  const auto choice = check::choose_nodes(verdict, outputs.wanted);
  const std::array<std::string, kFilesOfDirectory.size()> contents{
      text_of(json, 2),
      check::events_of(verdict, now),
      check::markdown_of(verdict, choice),
      report::check_page(json),
      compress_hostlist(choice.leave_out) + (choice.leave_out.empty() ? "" : "\n"),
      choice.enough() ? compress_hostlist(choice.use) + "\n" : ""};
  std::filesystem::create_directories(outputs.directory);
  FirstError error;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    error.keep([&] { write_file(outputs.directory + "/" + kFilesOfDirectory[i], contents[i]); });
  }
  error.rethrow();
}

// Prints the commands that drain the bad nodes, or drains them.
void drain(const check::Verdict& verdict, const CheckOutputs& outputs) {
  const auto drains = check::drains_of(verdict);
  if (outputs.act && drains.empty() && outputs.resume_after > 0) {
    fmt::print(stderr, "{}", resume_node(verdict, outputs.resume_after, outputs.state_file));
  }
  if (drains.empty()) return;
  if (outputs.act) {
    if (!outputs.state_file.empty()) std::filesystem::remove(outputs.state_file);
    std::optional<check::DrainLimit> limit;
    if (!outputs.max_drain.empty()) limit = check::drain_limit_from(outputs.max_drain);
    fmt::print(stderr, "{}", drain_nodes(drains, limit));
    return;
  }
  for (const auto& one : drains) {
    fmt::print(stderr, "ddp-check: to drain it: {}\n", check::scontrol_line(one));
  }
}

}  // namespace

void add_outputs(CLI::App& command, CheckOutputs& outputs) {
  command.add_option("--json", outputs.json, "Write all findings and measurements to this file")
      ->type_name("FILE");
  command
      .add_option("--exclude-file", outputs.exclude,
                  "Write the names of bad nodes to this file, one per line; empty if there are "
                  "none")
      ->type_name("FILE");
}

void add_outputs_of_nodes(CLI::App& command, CheckOutputs& outputs) {
  command
      .add_option("--out", outputs.directory,
                  "Write verdict.json, events.jsonl, report.md, report.html, exclude.txt and "
                  "good_hostlist.txt to this directory")
      ->type_name("DIR");
  command
      .add_option("--want", outputs.wanted,
                  "Number of nodes the job needs. Extra good nodes become spares; if there are too "
                  "few, the result is CRITICAL and good_hostlist.txt is empty")
      ->check(CLI::Range(1, 100'000));
}

void add_act(CLI::App& command, CheckOutputs& outputs) {
  command.add_flag("--act", outputs.act,
                   "Drain the bad nodes with scontrol instead of printing the command; nodes "
                   "already drained for another reason are not touched");
  command
      .add_option(
          "--max-drain", outputs.max_drain,
          "With --act: limit of drained nodes in the whole cluster, for any reason; a number or a "
          "percentage")
      ->type_name("N|P%")
      ->check([](const std::string& text) {
        try {
          check::drain_limit_from(text);
          return std::string();
        } catch (const UsageError& error) {
          return std::string(error.what());
        }
      });
}

void add_resume(CLI::App& command, CheckOutputs& outputs) {
  auto* state = command
                    .add_option("--state", outputs.state_file,
                                "File on this node in which --resume-after counts clean checks")
                    ->type_name("FILE");
  command
      .add_option(
          "--resume-after", outputs.resume_after,
          "With --act: resume a node that ddp-check drained for a reason checked here, after N "
          "clean checks in a row")
      ->needs(state)
      ->check(CLI::Range(1, 1000));
}

std::string program_name() {
  return fmt::format("ddp-check {}", kVersion);
}

void publish(const check::Verdict& verdict, const CheckOutputs& outputs) {
  std::string text = check::text_of(verdict);
  if (outputs.wanted > 0) {
    text += check::sentence_of(check::choose_nodes(verdict, outputs.wanted)) + "\n";
  }
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  const double now = unix_seconds();
  const auto json = check::json_of(verdict, program_name(), now);
  FirstError error;
  error.keep([&] {
    if (!outputs.exclude.empty()) write_file(outputs.exclude, check::exclude_list(verdict));
  });
  error.keep([&] {
    if (!outputs.json.empty()) write_file(outputs.json, text_of(json, 2));
  });
  error.keep([&] {
    if (!outputs.directory.empty()) write_directory(verdict, json, now, outputs);
  });
  // Drains bad nodes even if the files could not be written, for example to a full disk.
  error.keep([&] { drain(verdict, outputs); });
  error.rethrow();
}

void keep(const check::Verdict& verdict, const CheckOutputs& outputs) {
  const std::string json = text_of(check::json_of(verdict, program_name(), unix_seconds()), 2);
  try {
    if (!outputs.json.empty()) write_file(outputs.json, json);
    if (outputs.directory.empty()) return;
    std::filesystem::create_directories(outputs.directory);
    write_file(outputs.directory + "/" + kFilesOfDirectory.front(), json);
  } catch (const std::exception&) {
    return;
  }
}

void require_distinct_outputs(const CheckOutputs& outputs, const std::string& counters_file) {
  std::vector<FileOfOption> files{{"--json", outputs.json},
                                  {"--exclude-file", outputs.exclude},
                                  {"--state", outputs.state_file},
                                  {"--counters", counters_file}};
  for (const auto& file : files_of_directory(outputs)) files.push_back({"--out", file});
  require_distinct(files);
}

void remove_outdated(const CheckOutputs& outputs) {
  auto files = files_of_directory(outputs);
  files.push_back(outputs.json);
  files.push_back(outputs.exclude);
  for (const auto& file : files) {
    if (!file.empty() && std::filesystem::is_regular_file(file)) std::filesystem::remove(file);
  }
}

}  // namespace ddp::tools
