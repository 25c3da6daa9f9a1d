// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/run_reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/deadline.h"
#include "base/errors.h"
#include "base/host.h"
#include "base/text.h"
#include "ddp_runtime/profile/process_memory.h"
#include "ddp_runtime/train/report/processors.h"
#include "ddp_runtime/train/report/run_history.h"
#include "ddp_runtime/train/report/trace_gather.h"

namespace ddp::train {
namespace {

using nlohmann::json;

using profile::Clock;

// Connections, first allocations and lazily built kernels make the first steps slow.
constexpr std::size_t kWarmupSteps = 5;
// A step whose times the device has not given after this many more is summed without them.
constexpr std::int64_t kMaxPending = 64;
// Ranks compare a step of a device this many steps later, when its times are known. A step for
// which a rank still has none is not compared.
constexpr std::int64_t kDeviceDelay = 8;
static_assert(kDeviceDelay < std::int64_t{profile::StepRecorder::kTracedSteps});
constexpr const char* kRowsHead = "step,epoch,loss,learning_rate,seconds,generation,ranks\n";
// That of ddp-run: the number of this start of the program, from 1.
constexpr const char* kGenerationVariable = "DDP_RUN_GENERATION";
constexpr std::uint64_t kMaxGenerationNumber = 1'000'000'000;
constexpr std::uintmax_t kMaxRunJson = std::uintmax_t{64} << 20;

// An allow-list: the whole environment would leak users' secrets into a file that users mail
// around.
json environment() {
  json variables = json::object();
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_RESTART_COUNT",
        "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return variables;
}

json mean_or_null(double sum, std::size_t count) {
  return count > 0 ? json(sum / static_cast<double>(count)) : json();
}

// `waiting` is the part of exposed_comm in which another rank was late. A single rank never waits.
json waiting_of(const profile::StepSummary& summary, const profile::WaitTotals& waits, int ranks) {
  if (ranks == 1) return 0.0;
  if (waits.steps == 0) return nullptr;
  const double exposed =
      summary.phase_means[static_cast<std::size_t>(profile::Phase::exposed_comm)];
  return std::min(waits.exposed_waiting / static_cast<double>(waits.steps), exposed);
}

json seconds_of(const profile::StepSummary& summary) {
  json seconds = {{"p50", summary.p50}, {"p95", summary.p95}, {"mean", summary.mean}};
  for (std::size_t p = 0; p < profile::kPhases; ++p) {
    seconds[std::string(to_string(static_cast<profile::Phase>(p)))] = summary.phase_means[p];
  }
  seconds["other"] = summary.other_mean;
  return seconds;
}

// The report of one rank about itself.
json rank_entry(const comm::Group& group, const RunFacts& facts,
                const profile::StepSummary& summary, const profile::WaitTotals& waits) {
  const auto processors = usable_processors();
  json seconds = seconds_of(summary);
  seconds["waiting"] = waiting_of(summary, waits, group.size());
  return {{"rank", group.rank()},
          {"node", host_name()},
          {"cpus", processors.size()},
          {"cpu_list", processor_list(processors)},
          {"threads", facts.threads > 0 ? json(facts.threads) : json()},
          {"peak_memory_bytes", profile::largest_memory()},
          {"compared_steps", waits.steps},
          {"late_share", mean_or_null(static_cast<double>(waits.late_steps), waits.steps)},
          {"step_seconds", std::move(seconds)}};
}

// The values are means over ranks, so the parts still sum to the mean; the percentiles are those of
// the slowest rank. Null if a rank does not know a value.
json over_ranks(const json& ranks) {
  json result;
  for (const auto& [key, first] : ranks.at(0).at("step_seconds").items()) {
    double sum = 0;
    double largest = 0;
    bool known = true;
    for (const auto& rank : ranks) {
      const json& value = rank.at("step_seconds").at(key);
      known = known && value.is_number();
      if (!known) break;
      sum += value.get<double>();
      largest = std::max(largest, value.get<double>());
    }
    const bool percentile = key == "p50" || key == "p95";
    result[key] = !known       ? json()
                  : percentile ? json(largest)
                               : json(sum / static_cast<double>(ranks.size()));
  }
  return result;
}

json communication(const profile::StepSummary& summary, const profile::WaitTotals& waits,
                   int world_size) {
  json comm = {{"bytes_per_step", summary.communication_bytes},
               {"seconds_per_step", summary.communication_seconds},
               {"wire_seconds_per_step", mean_or_null(waits.wire, waits.steps)},
               {"busbw_GBps", nullptr},
               {"overlap_ratio", nullptr}};
  if (summary.communication_seconds <= 0) return comm;
  // Ring-equivalent: the bytes that each rank must send and receive for an all-reduce of this size.
  const double factor = 2.0 * (world_size - 1) / world_size;
  // A late rank does not make the network slow: see Note [Waiting and the wire].
  const double wire = waits.steps > 0 ? waits.wire / static_cast<double>(waits.steps) : 0;
  const double seconds = wire > 0 ? wire : summary.communication_seconds;
  comm["busbw_GBps"] = summary.communication_bytes * factor / seconds / 1e9;
  comm["overlap_ratio"] = summary.hidden_seconds / summary.communication_seconds;
  return comm;
}

// Sets the number of ranks on each rank's node. Returns the number of nodes.
std::size_t count_local_ranks(json& ranks) {
  std::map<std::string, int> local;
  for (const auto& rank : ranks) ++local[rank.at("node").get<std::string>()];
  for (auto& rank : ranks) rank["local_ranks"] = local[rank.at("node").get<std::string>()];
  return local.size();
}

json report_of(const comm::Group& group, const RunFacts& facts, const RunOutcome& outcome,
               const profile::StepSummary& summary, const profile::WaitTotals& waits, json ranks) {
  const std::size_t nodes = count_local_ranks(ranks);
  const json seconds = over_ranks(ranks);
  const double mean = seconds.at("mean").get<double>();
  const auto& evaluation = outcome.evaluation;
  const auto& crc = outcome.parameters_crc32c;
  json report = {{"schema", "slurm-ddp/run/1"},
                 {"program", facts.program},
                 {"command", facts.command},
                 {"started_unix", facts.started_unix},
                 {"finished_unix", unix_seconds()},
                 {"world_size", group.size()},
                 {"nodes", nodes},
                 {"backend", group.backend()},
                 {"device", facts.device},
                 {"model", facts.model},
                 {"data", facts.data},
                 {"parameters", facts.parameters},
                 {"global_batch", facts.global_batch},
                 {"epochs", facts.epochs},
                 {"steps", outcome.steps},
                 {"samples_per_second",
                  mean > 0 ? json(static_cast<double>(facts.global_batch) / mean) : json(nullptr)},
                 {"final",
                  {{"train_loss", outcome.train_loss},
                   {"eval_loss", evaluation ? json(evaluation->loss) : json(nullptr)},
                   {"eval_accuracy", evaluation ? json(evaluation->accuracy) : json(nullptr)},
                   {"best_eval_loss",
                    outcome.best_eval_loss ? json(*outcome.best_eval_loss) : json(nullptr)}}},
                 {"parameters_crc32c", crc ? json(fmt::format("0x{:08x}", *crc)) : json(nullptr)},
                 {"step_seconds", seconds},
                 {"comm", communication(summary, waits, group.size())},
                 {"ranks", std::move(ranks)},
                 {"environment", environment()}};
  if (facts.settings.is_object()) report["settings"] = facts.settings;
  if (facts.sharding.is_object()) report["sharding"] = facts.sharding;
  if (evaluation && !evaluation->metrics.empty()) {
    report["final"]["eval_metrics"] = evaluation->metrics;
  }
  return report;
}

json gather_ranks(comm::Group& group, const json& mine) {
  json ranks = json::array();
  for (const auto& text : group.all_gather_text(mine.dump())) ranks.push_back(json::parse(text));
  return ranks;
}

std::string row_of(const StepLoss& s, std::int64_t generation, int ranks) {
  return fmt::format("{},{},{:.9g},{:.9g},{:.6f},{},{}\n", s.step, s.epoch, s.loss, s.learning_rate,
                     s.seconds, generation, ranks);
}

// The number of this start of the program by ddp-run; 1 without it.
std::int64_t generation_from_environment() {
  const char* const text = std::getenv(kGenerationVariable);
  const auto number = text == nullptr ? std::nullopt : parse_decimal(text, kMaxGenerationNumber);
  return std::max<std::int64_t>(static_cast<std::int64_t>(number.value_or(1)), 1);
}

// Whether the run.json that is there, if any, is of an earlier process of this run: ddp-run has
// started the program again, or the program has resumed.
bool continues_run(std::int64_t first_step) {
  return first_step > 0 || generation_from_environment() > 1;
}

void make_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw RuntimeError(fmt::format("cannot create the report directory {}: {}", directory.string(),
                                   error.message()));
  }
}

// The text of run.json. Invalid UTF-8 is replaced, because JSON readers in other languages may
// reject it.
std::string text_of(const json& report) {
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

json make_run_report(comm::Group& group, const RunFacts& facts, const RunOutcome& outcome,
                     const std::vector<profile::StepRecord>& steps) {
  const auto summary = summarize(steps, kWarmupSteps);
  json ranks = gather_ranks(group, rank_entry(group, facts, summary, {}));
  if (group.rank() != 0) return nullptr;
  return report_of(group, facts, outcome, summary, {}, std::move(ranks));
}

void write_run_files(const std::filesystem::path& directory, const json& report,
                     const std::vector<StepLoss>& losses, const std::string& trace) {
  make_directory(directory);
  std::string rows = kRowsHead;
  const auto ranks = report.value("world_size", 1);
  for (const auto& loss : losses) rows += row_of(loss, 1, ranks);
  replace_file(directory / "steps.csv", rows);
  replace_file(directory / "trace.json", trace);
  replace_file(directory / "run.json", text_of(report));
}

std::vector<std::string> node_names(comm::Group& group) {
  return group.all_gather_text(host_name());
}

int count_nodes(comm::Group& group) {
  const auto names = node_names(group);
  return static_cast<int>(std::set(names.begin(), names.end()).size());
}

RunReporter::WallSpan::~WallSpan() {
  reporter_.outside_[static_cast<std::size_t>(part_)] += seconds_since(begin_);
}

RunReporter::RunReporter(comm::Group& group, RunFacts facts, ReportTarget target,
                         const profile::StepRecorder& recorder, bool synchronous, LogFunction log)
    : group_(group),
      facts_(std::move(facts)),
      target_(std::move(target)),
      recorder_(recorder),
      synchronous_(synchronous),
      log_(std::move(log)),
      exchange_(group, kWarmupSteps),
      totals_(kWarmupSteps),
      switches_before_(involuntary_switches()),
      startup_seconds_(process_age_seconds()),
      earlier_(json::array()),
      rows_written_(Clock::now()) {
  process_start_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(startup_seconds_));
  if (writes() && continues_run(target_.first_step)) {
    const auto written = read_if_there(target_.directory / "run.json", kMaxRunJson);
    if (target_.first_step > 0) earlier_ = earlier_processes(written);
    resilience_ = resilience_of_earlier(written);
  }
}

bool RunReporter::writes() const noexcept {
  return group_.rank() == 0 && !target_.directory.empty();
}

bool RunReporter::compares() const noexcept {
  return synchronous_ && !target_.directory.empty();
}

bool RunReporter::after_step() {
  ++steps_;
  sum_steps();
  if (!compares()) return false;
  compare(age_of_comparison());
  const auto step = exchange_.agreed_step_seconds();
  const auto since = static_cast<double>(steps_ - steps_at_update_);
  return step && since * *step >= target_.interval_seconds;
}

// The same on all ranks. 1: the last step.
std::int64_t RunReporter::age_of_comparison() const noexcept {
  return recorder_.times_on_device() ? kDeviceDelay : 1;
}

void RunReporter::compare(std::int64_t age) {
  if (age > steps_) return;
  exchange_.after_step(collectives_of(recorder_, static_cast<std::size_t>(age)),
                       record_of(steps_ - age).total());
}

// `step` counts from 0.
const profile::StepRecord& RunReporter::record_of(std::int64_t step) const {
  const auto& recorded = recorder_.steps();
  return recorded[recorded.size() - static_cast<std::size_t>(steps_ - step)];
}

// Records of a step may still arrive after it, so the last step is not summed yet, and a step of a
// device only when its times are known, unless the device gives none.
void RunReporter::sum_steps() {
  for (; summed_ + 1 < steps_; ++summed_) {
    const auto& step = record_of(summed_);
    if (step.pending && steps_ - summed_ <= kMaxPending) return;
    totals_.add(step);
  }
}

void RunReporter::add_rows(std::span<const StepLoss> rows) {
  if (writes()) pending_rows_.insert(pending_rows_.end(), rows.begin(), rows.end());
  // Asynchronous ranks have no common step at which they could meet for update().
  if (synchronous_ || seconds_since(rows_written_) < target_.interval_seconds) return;
  try {
    write_rows();
  } catch (const RuntimeError&) {  // finish() retries and reports the error
  }
}

// Leaves the files untouched until this process has a row.
void RunReporter::write_rows() {
  rows_written_ = Clock::now();
  if (!writes() || pending_rows_.empty()) return;
  if (!csv_) {
    KeptRows keep(target_.first_step);
    csv_.emplace(target_.directory / "steps.csv", kRowsHead, std::ref(keep));
    rows_missing_ = target_.first_step - keep.count();
    // A requeued job counts its generations from 1 again.
    generation_ = std::max(generation_from_environment(), keep.generation() + 1);
  }
  std::string text;
  for (const auto& row : pending_rows_) text += row_of(row, generation_, group_.size());
  csv_->append(text);
  pending_rows_.clear();
}

profile::StepTotals RunReporter::totals() const {
  auto totals = totals_;
  for (auto step = summed_; step < steps_; ++step) totals.add(record_of(step));
  return totals;
}

json RunReporter::gather(const RunOutcome& outcome) {
  const auto totals = this->totals();
  const auto summary = totals.summary();
  json mine = rank_entry(group_, facts_, summary, exchange_.waits());
  const double seconds = totals.seconds();
  const auto switches = static_cast<double>(involuntary_switches() - switches_before_);
  mine["involuntary_switches_per_second"] = seconds > 0 ? json(switches / seconds) : json();
  json ranks = gather_ranks(group_, mine);
  if (group_.rank() != 0) return nullptr;
  ranks_ = ranks;
  return report_of(group_, facts_, outcome, summary, exchange_.waits(), std::move(ranks));
}

// The parts sum to the total.
json RunReporter::wall_seconds() const {
  const double total = seconds_since(process_start_);
  const double steps = totals().seconds();
  const double rest = total - startup_seconds_ - steps - outside_[0] - outside_[1];
  return {{"total", total},
          {"startup", startup_seconds_},
          {"steps", steps},
          {"evaluation", outside_[static_cast<std::size_t>(WallPart::evaluation)]},
          {"checkpoint", outside_[static_cast<std::size_t>(WallPart::checkpoint)]},
          {"rest", rest}};
}

void RunReporter::complete(json& report, const char* outcome, const std::string& reason) const {
  report["outcome"] = outcome;
  report["outcome_reason"] = reason;
  report["covers"] = {{"first_step", target_.first_step + 1},
                      {"last_step", target_.first_step + steps_},
                      {"earlier", earlier_},
                      {"rows_missing", rows_missing_}};
  if (resilience_.is_object()) report["resilience"] = resilience_;
  report["wall_seconds"] = wall_seconds();
}

void RunReporter::write_report(const json& report) {
  replace_file(target_.directory / "run.json", text_of(report));
  file_ = target_.directory / "run.json";
}

void RunReporter::update(const RunOutcome& so_far) {
  steps_at_update_ = steps_;
  updated_ = Clock::now();
  auto report = gather(so_far);
  if (!writes()) return;
  try {
    make_directory(target_.directory);
    write_rows();
    complete(report, "running", "");
    write_report(report);
    warned_ = false;
  } catch (const std::exception& error) {
    warn_once(error);
  }
}

// A process without steps would replace the report of those that have trained.
void RunReporter::update_with_save(const RunOutcome& so_far) {
  compares() && steps_ > 0 ? update(so_far) : keep_rows();
}

// The clocks of the ranks differ.
void RunReporter::update_if_old(const RunOutcome& so_far) {
  if (!compares() || steps_ == 0) return;
  const bool old = !updated_ || seconds_since(*updated_) >= target_.interval_seconds;
  if (group_.all_reduce_value(old ? 1 : 0, comm::ReduceOp::max) != 0) update(so_far);
}

void RunReporter::keep_rows() {
  if (!writes()) return;
  try {
    make_directory(target_.directory);
    write_rows();
  } catch (const std::exception& error) {
    warn_once(error);
  }
}

void RunReporter::warn_once(const std::exception& error) {
  if (std::exchange(warned_, true)) return;
  log_.warning(fmt::format("the report is not up to date: {}", error.what()));
}

json RunReporter::finish(const RunOutcome& outcome, Ending ending, const std::string& reason,
                         const json& more) {
  if (compares()) {
    for (auto age = age_of_comparison() - 1; age > 0; --age) compare(age);
    exchange_.finish();
  }
  auto report = gather(outcome);
  const auto trace = target_.directory.empty()
                         ? std::string()
                         : gather_trace(group_, recorder_, ranks_, host_name());
  if (group_.rank() != 0) return report;
  if (writes()) write_last_rows();
  complete(report, ending == Ending::finished ? "finished" : "interrupted", reason);
  if (more.is_object()) report.update(more);
  if (writes()) write_last(report, trace);
  return report;
}

// A disk that is full when the run ends does not make a complete run a failed one, nor one that
// must be continued.
void RunReporter::write_last_rows() {
  try {
    make_directory(target_.directory);
    write_rows();
  } catch (const std::exception& error) {
    log_.warning(fmt::format("the rows of the last steps are not in the report: {}", error.what()));
  }
}

void RunReporter::write_last(const json& report, const std::string& trace) {
  try {
    if (steps_ > 0 || !std::filesystem::exists(target_.directory / "run.json")) {
      replace_file(target_.directory / "trace.json", trace);
      write_report(report);
    } else if (auto earlier = unfinished_earlier();
               !earlier.is_null() && report.at("outcome") == "finished") {
      write_report(completed_report(std::move(earlier), report));
    }
  } catch (const std::exception& error) {
    file_.clear();
    log_.warning(fmt::format("there is no report: {}", error.what()));
  }
}

json RunReporter::unfinished_earlier() const {
  if (target_.first_step == 0) return nullptr;
  return unfinished_report(read_if_there(target_.directory / "run.json", kMaxRunJson),
                           target_.first_step, facts_.settings);
}

bool RunReporter::lacks_ending() {
  std::error_code ignored;  // writing reports it
  const bool mine =
      writes() && (!std::filesystem::exists(target_.directory / "run.json", ignored) ||
                   !unfinished_earlier().is_null());
  return group_.all_reduce_value(mine ? 1 : 0, comm::ReduceOp::max) != 0;
}

void RunReporter::failed(const RunOutcome& so_far, const std::string& reason) noexcept {
  if (!writes() || steps_ == 0) return;
  try {
    make_directory(target_.directory);
    write_rows();
    const auto summary = totals().summary();
    json ranks = ranks_;
    // Not in braces alone, which some compilers take for the entry itself.
    if (ranks.is_null()) {
      ranks = json::array({rank_entry(group_, facts_, summary, exchange_.waits())});
    }
    auto report = report_of(group_, facts_, so_far, summary, exchange_.waits(), std::move(ranks));
    complete(report, "failed", reason);
    write_report(report);
  } catch (...) {  // must not hide the failure of the run
  }
}

}  // namespace ddp::train
