// SPDX-License-Identifier: Apache-2.0
// ddp-report: analyzes the run.json of one or more runs. It reports where the time went, whether
// the runs scale, and how they differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "ddp_runtime/report/analysis/extrap_file.h"
#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/record/error.h"
#include "ddp_runtime/report/render/escape.h"
#include "ddp_runtime/report/render/render.h"
#include "ddp_runtime/tools/help_lines.h"
#include "ddp_runtime/tools/why_command.h"
#include "slurm_ddp/version.h"

namespace {

using namespace ddp;

constexpr int kTooSlow = 1;  // too little efficiency, or a regression
constexpr int kUsage = 2;
constexpr int kCannotTell = 3;

std::string program_name() {
  return fmt::format("ddp-report {}", kVersion);
}

// Each command stores its outputs separately, because a --config file sets the options of all
// commands.
struct Outputs {
  std::string json;
  std::string markdown;
  std::string html;
};

struct Arguments {
  std::string run;
  Outputs run_outputs;
  std::vector<std::string> sweep;
  Outputs sweep_outputs;
  std::string extrap;
  std::optional<double> min_efficiency;
  bool mixed = false;
  std::vector<std::string> compare;
  std::vector<std::string> with;
  std::string metric = "time";
  std::optional<double> max_regression;
  Outputs compare_outputs;
  std::vector<std::string> why;
};

void add_outputs(CLI::App& command, Outputs& outputs) {
  command.add_option("--html", outputs.html, "Write one self-contained HTML file")
      ->type_name("FILE");
  command.add_option("--json", outputs.json, "Write the figures as JSON")->type_name("FILE");
  command.add_option("--markdown", outputs.markdown, "Write the tables as Markdown")
      ->type_name("FILE");
}

// "5%" or "0.05"; nullopt if the text is neither, or the fraction is negative.
std::optional<double> fraction_of(std::string text) {
  const bool percent = text.ends_with('%');
  if (percent) text.pop_back();
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value) || !(value >= 0 && value < 1e6)) return std::nullopt;
  return percent ? value / 100 : value;
}

void add_commands(CLI::App& app, Arguments& arguments) {
  CLI::App& run = *app.add_subcommand("run", "Show where the time of one run went, rank by rank");
  run.add_option("DIR", arguments.run, "The --report-dir of the run, or its run.json")->required();
  add_outputs(run, arguments.run_outputs);

  CLI::App& sweep = *app.add_subcommand(
      "sweep", "Show how runs with different numbers of ranks scaled, and where they lost time");
  sweep.add_option("DIR", arguments.sweep, "The --report-dir of each run")->required()->take_all();
  add_outputs(sweep, arguments.sweep_outputs);
  sweep
      .add_option("--min-efficiency", arguments.min_efficiency,
                  "Fail unless every number of ranks reaches this efficiency, such as 0.8")
      ->check([](const std::string& text) -> std::string {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        return number && value > 0 && value <= 1 ? "" : "give a fraction, such as 0.8";
      });
  sweep
      .add_option("--extrap", arguments.extrap,
                  "Write the times of all runs in the JSON Lines format of Extra-P")
      ->type_name("FILE");
  sweep.add_flag("--mixed", arguments.mixed,
                 "Accept runs of different work, without evaluating their scaling");

  CLI::App& compare = *app.add_subcommand(
      "compare", "Compare two runs, or two groups of runs, whose noise is then known");
  compare
      .add_option("DIR", arguments.compare,
                  "The --report-dir of the first run and of the second, or of all runs of group A")
      ->required()
      ->take_all();
  compare.add_option("--with", arguments.with, "The --report-dir of each run of group B")
      ->type_name("DIR")
      ->take_all();
  compare
      .add_option("--metric", arguments.metric,
                  "What is judged: time (per sample), p50 or p95 (of the step time), memory")
      ->check([](const std::string& text) -> std::string {
        return report::metric_of(text) ? "" : "give time, p50, p95 or memory";
      })
      ->capture_default_str();
  compare
      .add_option_function<std::string>(
          "--max-regression",
          [&arguments](const std::string& text) { arguments.max_regression = fraction_of(text); },
          "Fail if B needs more than this, such as 5%, beyond the noise")
      ->check([](const std::string& text) -> std::string {
        return fraction_of(text) ? "" : "give a percentage, such as 5%";
      });
  add_outputs(compare, arguments.compare_outputs);

  CLI::App& why = *app.add_subcommand("why", "Name the first cause for which a job ended");
  why.add_option("JOB|LOG", arguments.why,
                 "The number of a SLURM job, or files with the output of its tasks")
      ->required()
      ->take_all();
}

void write_outputs(const report::Document& document, const Outputs& outputs) {
  if (!outputs.html.empty()) write_file(outputs.html, report::to_html(document));
  if (!outputs.json.empty()) {
    const auto replace = nlohmann::json::error_handler_t::replace;
    write_file(outputs.json, report::to_json(document).dump(2, ' ', false, replace) + "\n");
  }
  if (!outputs.markdown.empty()) {
    write_file(outputs.markdown, report::to_markdown(document));
  }
}

// Prints the summary. Writes the tables to the requested files, or prints them if no file was
// requested.
void print(const report::Document& document, const Outputs& outputs) {
  const bool files = !outputs.html.empty() || !outputs.json.empty() || !outputs.markdown.empty();
  if (!files) {
    std::fputs(report::terminal_text(report::to_markdown(document)).c_str(), stdout);
    return;
  }
  const auto line = [](const std::string& text) {
    fmt::print("{}\n", report::terminal_text(text));
  };
  line(document.verdict);
  if (!document.advice.empty()) line(document.advice);
  for (const auto& caution : document.cautions) line("Note: " + caution);
  for (const auto& file : {outputs.html, outputs.json, outputs.markdown}) {
    if (!file.empty()) line("wrote " + file);
  }
}

void publish(const report::Document& document, const Outputs& outputs) {
  write_outputs(document, outputs);
  print(document, outputs);
}

std::string efficiency_text(const report::Scaling& scaling, int world_size) {
  for (const auto& point : scaling.points) {
    if (point.world_size != world_size) continue;
    if (point.world_size == scaling.base) return "all runs have the same number of ranks";
    return fmt::format("{} with {} ranks",
                       point.efficiency ? fmt::format("{:.3f}", *point.efficiency) : "unknown",
                       world_size);
  }
  return "unknown";
}

bool is_known(const report::Scaling& scaling, int world_size) {
  return std::any_of(scaling.points.begin(), scaling.points.end(), [&](const auto& point) {
    return point.world_size == world_size && point.world_size != scaling.base && point.efficiency;
  });
}

int gate(const report::Scaling& scaling, const Arguments& arguments) {
  if (!arguments.min_efficiency) return 0;
  const auto sizes = report::below(scaling, *arguments.min_efficiency);
  if (sizes.empty()) return 0;
  std::string text;
  bool known = true;
  for (const int size : sizes) {
    text += (text.empty() ? "" : ", ") + efficiency_text(scaling, size);
    known = known && is_known(scaling, size);
  }
  fmt::print(stderr, "ddp-report: efficiency below {:g}: {}\n", *arguments.min_efficiency, text);
  return known ? kTooSlow : kCannotTell;
}

// Reads runs, each of which must be given only once.
std::vector<report::RunRecord> read_runs(const std::vector<std::string>& directories,
                                         std::set<std::filesystem::path>& seen) {
  std::vector<report::RunRecord> runs;
  for (const auto& directory : directories) {
    std::error_code error;
    const auto place = std::filesystem::canonical(directory, error);
    if (!error && !seen.insert(place).second) {
      throw UsageError(directory +
                       " is given twice, which would count one run as two; list it once");
    }
    runs.push_back(report::read_run(directory));
  }
  return runs;
}

report::Scaling analyze_sweep(const Arguments& arguments) {
  std::set<std::filesystem::path> seen;
  auto scaling = report::analyze(read_runs(arguments.sweep, seen));
  const auto what = report::unlike(scaling);
  if (what.empty()) return scaling;
  const std::string differs = fmt::format("the runs differ in {}", fmt::join(what, ", "));
  if (!arguments.mixed) {
    throw UsageError(differs +
                     ", so scaling cannot be computed; give runs of the same workload, or --mixed "
                     "to list them side by side");
  }
  if (!arguments.extrap.empty()) {
    throw UsageError(differs + "; --extrap needs runs of the same workload");
  }
  if (arguments.min_efficiency) {
    throw UsageError(differs + "; --min-efficiency needs runs of the same workload");
  }
  return scaling;
}

// Runs whose mean and noise mean something: of one work, on one number of ranks.
report::ScalingPoint group_of(std::vector<report::RunRecord> runs, const char* name) {
  auto scaling = report::analyze(std::move(runs));
  auto what = report::unlike(scaling);
  if (scaling.points.size() > 1) what.emplace_back("number of ranks");
  if (!what.empty()) {
    throw UsageError(
        fmt::format("the runs of group {} differ in {}; give runs of the same work in a group",
                    name, fmt::join(what, ", ")));
  }
  return scaling.points.front();
}

int gate(const report::Comparison& comparison, double limit) {
  const auto judgment = report::judge(comparison.change, limit);
  if (judgment == report::Judgment::fine) return 0;
  const bool regression = judgment == report::Judgment::regression;
  fmt::print(stderr, "ddp-report: {}: {}; --max-regression is {:g} %{}\n",
             regression ? "regression" : "cannot tell", report::sentence_of(comparison),
             100 * limit,
             regression || !comparison.change ? "" : ", and more runs would narrow the range");
  return regression ? kTooSlow : kCannotTell;
}

int compare_command(const Arguments& arguments) {
  auto first = arguments.compare;
  auto second = arguments.with;
  if (second.empty()) {
    if (first.size() != 2) {
      throw UsageError("compare takes two runs, or a group of runs and --with another group");
    }
    second.push_back(first.back());
    first.pop_back();
  }
  std::set<std::filesystem::path> seen;
  const bool single = first.size() + second.size() == 2;
  auto runs_a = read_runs(first, seen);
  if (single) seen.clear();  // a run may be compared with itself
  const auto a = group_of(std::move(runs_a), "A");
  const auto b = group_of(read_runs(second, seen), "B");
  const auto metric = *report::metric_of(arguments.metric);
  publish(report::compare_document(a, b, metric, program_name()), arguments.compare_outputs);
  if (!arguments.max_regression) return 0;
  if (a.world_size != b.world_size || a.median.model != b.median.model ||
      a.median.data != b.median.data) {
    throw UsageError(
        "--max-regression needs two groups with the same model, data and number of ranks");
  }
  return gate(report::compare(a, b, metric), *arguments.max_regression);
}

int run_command(const CLI::App& app, const Arguments& arguments) {
  if (app.got_subcommand("run")) {
    publish(report::run_document(report::read_run(arguments.run), program_name()),
            arguments.run_outputs);
    return 0;
  }
  if (app.got_subcommand("compare")) return compare_command(arguments);
  if (app.got_subcommand("why")) return tools::explain_end(arguments.why);
  const report::Scaling scaling = analyze_sweep(arguments);
  if (!arguments.extrap.empty()) write_file(arguments.extrap, report::to_extrap(scaling));
  publish(report::sweep_document(scaling, program_name()), arguments.sweep_outputs);
  if (!arguments.extrap.empty()) {
    fmt::print("{}\n", report::terminal_text("wrote " + arguments.extrap));
  }
  return gate(scaling, arguments);
}

constexpr const char* kDescription =
    "Reports where the time of a run went, how well runs scale, how two runs differ, and why a job "
    "ended.\n"
    "Each run is the directory that ddp-train --report-dir wrote.\n\n"
    "Examples:\n"
    "  ddp-report run report/\n"
    "      phases of a step, rank by rank, on the terminal\n"
    "  ddp-report sweep ranks-1/ ranks-2/ ranks-4/ --html scaling.html\n"
    "      speedup, efficiency and the causes of lost time, in one self-contained file;\n"
    "      repeated runs with the same number of ranks give the spread\n"
    "  ddp-report sweep runs/* --min-efficiency 0.8 --json scaling.json\n"
    "      a gate for automated tests: exits with 1 below 80 %\n"
    "  ddp-report compare before/ after/\n"
    "      the differences and their sizes\n"
    "  ddp-report compare before-*/ --with after-*/ --max-regression 5%\n"
    "      a gate that knows the noise between runs: exits with 1 for a regression, 3 if the\n"
    "      runs cannot tell\n"
    "  ddp-report why 1234\n"
    "  ddp-report why slurm-1234.out\n"
    "      the first error, its rank and place, or how SLURM ended the job";

constexpr const char* kFooter =
    "\nWithout --html, --json or --markdown, the whole report is printed as Markdown.\n"
    "Exit codes: 0 success, 1 the efficiency is too low, or a regression, 2 usage error, 3 a run "
    "cannot be read, a file cannot be written, the efficiency is not known, the runs cannot tell "
    "whether there is a regression, or no cause is found.";

int run(int argc, char** argv) {
  CLI::App app(kDescription, "ddp-report");
  tools::keep_help_lines(app);
  app.footer(kFooter);
  app.set_version_flag("--version", program_name());
  app.set_config("--config", "", "Read options from this file (TOML or INI)")->type_name("FILE");
  app.require_subcommand(1);
  app.fallthrough();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Arguments arguments;
  add_commands(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "ddp-report: {}; see ddp-report --help\n",
               report::terminal_text(error.what()));
    return kUsage;
  }
  return run_command(app, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ddp::UsageError& error) {
    fmt::print(stderr, "ddp-report: {}\n", report::terminal_text(error.what()));
    return kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-report: {}\n", report::terminal_text(error.what()));
    return kCannotTell;
  }
}
