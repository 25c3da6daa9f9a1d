// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/journal.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/host.h"
#include "base/secret/random_token.h"
#include "base/text.h"
#include "ddp_runtime/elastic/accounting/resilience.h"
#include "ddp_runtime/elastic/run/report_files.h"

namespace ddp::elastic {
namespace {

constexpr std::size_t kRunName = 8;
constexpr std::size_t kMaxWarning = 500;
constexpr const char* kEventsName = "events.jsonl";
constexpr const char* kResilienceName = "resilience.json";

// With so many digits after the point that `parts` of a second remain.
double rounded(double seconds, double parts) {
  return std::round(seconds * parts) / parts;
}

double unix_time_now() {
  return rounded(unix_seconds(), 1e3);
}

}  // namespace

Journal::Journal(JournalPlan plan, Messages& messages)
    : plan_(std::move(plan)),
      messages_(messages),
      fields_{{"schema", kEventsSchema},
              {"restart", plan_.restart},
              {"run", random_token().substr(0, kRunName)}} {
  if (!plan_.job.empty()) fields_["job"] = plan_.job;
  open_log();
}

void Journal::open_log() {
  const bool asked_for = !plan_.events_file.empty();
  if (!asked_for && plan_.report_directory.empty()) return;
  try {
    if (asked_for) {
      std::error_code ignored;  // report() says why, later
      if (!plan_.report_directory.empty()) {
        std::filesystem::create_directories(plan_.report_directory, ignored);
      }
    } else {
      std::filesystem::create_directories(plan_.report_directory);
      plan_.events_file = plan_.report_directory / kEventsName;
    }
    log_ = EventLog(plan_.events_file, /*follow=*/asked_for);
  } catch (const std::exception& error) {
    if (asked_for) throw UsageError(fmt::format("--events {}", error.what()));
    plan_.events_file.clear();
    return warn(fmt::format("no events are written: {}", error.what()));
  }
  if (!log_.claim()) {
    warn(fmt::format("another ddp-run writes to {}, so this one records nothing there",
                     plan_.events_file));
    log_ = EventLog();
    plan_.events_file.clear();
    plan_.report_directory.clear();
    return;
  }
  read_history(plan_.events_file, account_);
}

void Journal::note(nlohmann::json entry) {
  if (!begun_) begun_ = Clock::now();
  const double now = seconds_since(*begun_);
  entry["seconds"] = rounded(now, 1e6);
  entry["t"] = unix_time_now();
  entry.update(fields_);
  if (const auto one = entry_from_json(entry)) account_.add(*one);
  const auto lines = thinning_.pass(std::move(entry), now);
  for (const auto& line : lines) write(line);
}

void Journal::tick() {
  if (!begun_) return;
  for (const auto& line : thinning_.due(seconds_since(*begun_))) write(line);
}

// Beside the events, if they are in a file.
std::filesystem::path Journal::directory() const {
  if (!plan_.report_directory.empty()) return plan_.report_directory;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(plan_.events_file, ignored)) return {};
  const auto parent = std::filesystem::path(plan_.events_file).parent_path();
  return parent.empty() ? "." : parent;
}

void Journal::report() {
  const auto place = directory();
  if (place.empty() || !account_.account()) return;
  try {
    const auto closed = account_.account()->closed();
    const auto file = place / kResilienceName;
    std::error_code ignored;
    // A run with nothing left to do is not worth the report of the one that did it.
    if (!closed.made_steps() && !has_report_ && std::filesystem::exists(file, ignored)) return;
    const auto resilience = resilience_of(closed);
    write_resilience(file, resilience);
    has_report_ = true;
    if (!plan_.report_directory.empty() && closed.made_steps()) {
      add_resilience(plan_.report_directory / "run.json", resilience);
    }
  } catch (const std::exception& error) {
    warn(fmt::format("where the time went is not written: {}", error.what()));
  }
}

std::string Journal::sentence() const {
  return account_.account() ? resilience_sentence(account_.account()->closed()) : std::string();
}

void Journal::write(const nlohmann::json& line) {
  if (const auto problem = log_.write(line); !problem.empty()) warn(problem);
}

void Journal::warn(std::string_view text) {
  if (std::exchange(warned_, true)) return;
  messages_.add(fmt::format("warning: {}", sanitize_lines(text, kMaxWarning)));
}

}  // namespace ddp::elastic
