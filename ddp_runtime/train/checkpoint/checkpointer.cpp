// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/duration.h"
#include "base/errors.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/after_save.h"
#include "ddp_runtime/train/checkpoint/checkpoint_agreement.h"
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"
#include "ddp_runtime/train/checkpoint/directory/directory_claim.h"
#include "ddp_runtime/train/checkpoint/directory/run_directory.h"
#include "ddp_runtime/train/checkpoint/local/memory_copies.h"
#include "ddp_runtime/train/checkpoint/resume/checkpoint_load.h"
#include "ddp_runtime/train/checkpoint/resume/resumed_run.h"
#include "ddp_runtime/train/checkpoint/save_failures.h"
#include "ddp_runtime/train/checkpoint/save_pipeline.h"
#include "ddp_runtime/train/checkpoint/write/save_timer.h"
#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/lineage.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"

namespace ddp::train {
namespace {

constexpr int kLastAttempts = 3;

// A file server can take longer to restart, but a job that must exit cannot wait longer.
constexpr auto kBetweenAttempts = std::chrono::milliseconds(500);

// Slower than most disks, so that a run that has not measured its disk stops early enough.
constexpr double kGuessedBytesPerSecond = 100e6;

// Time for the last command of a process that must exit: SLURM kills it after 30 s.
constexpr double kLeavingSeconds = 10;

// Rank 0's answer when no command runs any more; no text means "not yet".
constexpr const char* kCommandsOver = "over";

// Collective. Throws UsageError on all ranks if the run cannot save to the directory.
void require_usable(comm::Group& group, const CheckpointOptions& options,
                    const ckpt::CheckpointDirectory& directory) {
  std::string mine;
  if (group.rank() == 0) {
    mine = why_misplaced(options.directory);
    if (mine.empty()) mine = why_not_writable(options.directory, "checkpoint");
    // A run that starts over in this directory would collide or mix with the existing steps.
    if (mine.empty() && options.resume == "never" && !directory.candidates().empty()) {
      mine = fmt::format(
          "{} already holds checkpoints; use --resume auto to resume from them, or another "
          "--checkpoint-dir",
          options.directory.string());
    }
  }
  const std::string problem = group.broadcast_text(mine, 0);
  if (!problem.empty()) throw UsageError(problem);
}

// `hosts`: one for each rank.
double mtbf_of(const CheckpointOptions& options, const std::vector<std::string>& hosts) {
  const std::set<std::string> nodes(hosts.begin(), hosts.end());
  return options.mtbf_seconds > 0 ? options.mtbf_seconds
                                  : kNodeMtbfSeconds / static_cast<double>(nodes.size());
}

}  // namespace

// At the end of an epoch, the state before its evaluation and the one after it have the same step.
struct SavePoint {
  std::int64_t step = -1;
  std::int64_t epoch = -1;

  static SavePoint of(const Position& position) { return {position.step, position.epoch}; }
  bool operator==(const SavePoint&) const = default;
};

struct Checkpointer::Parts {
  Parts(comm::Group& its_group, TrainingState& its_state, CheckpointOptions its_options,
        nlohmann::json its_run, LogFunction its_log)
      : group(its_group),
        state(its_state),
        options(std::move(its_options)),
        run(std::move(its_run)),
        log(std::move(its_log)) {}

  ckpt::CheckpointInfo info_of(const Position& position) const;
  bool is_permanent(const Position& position) const;
  bool replaces(const Position& position) const;
  void begin_save(const Position& position);
  void record(const SaveResult& result, double seconds);
  void say_interval(double seconds);
  void agree_on_newest();
  std::string newest_position();
  void warn_of_best(const Position& position, const std::string& problem);
  void report_commands();
  std::string wait_for_commands(std::chrono::steady_clock::time_point begin,
                                std::chrono::milliseconds look);

  comm::Group& group;
  TrainingState& state;
  CheckpointOptions options;
  nlohmann::json run;
  RunLog log;
  ckpt::OwnerTag owner = this_owner();
  ckpt::Lineage lineage{ckpt::new_run_name(), {}, {}};  // of the next checkpoint; rank 0
  std::optional<std::uint64_t> newest_parent;           // of the newest checkpoint; rank 0
  std::vector<std::uint32_t> newest_states;             // of the one resumed from; rank 0
  DirectoryClaim claim{group, options.directory, owner, log};
  BestCheckpoint best{options.directory,
                      owner,
                      claim,
                      run,
                      static_cast<std::size_t>(options.keep_best),
                      parse_best_metric(options.best_metric),
                      log};
  std::optional<ckpt::CheckpointDirectory> directory;  // nullopt: nothing is saved
  std::optional<ckpt::Retention> retention;            // as `directory`
  std::filesystem::path newest;
  SavePoint attempted;
  SavePoint durable;           // rank 0
  SavePoint agreed;            // the same on all ranks, as of the last drain()
  SaveFailures failures{log};  // rank 0
  double longest_save = 0;
  double stall = 0;                     // seconds that the latest save stopped training
  std::optional<SaveTimer> timer;       // rank 0, as `directory`
  std::optional<AfterSave> after_save;  // rank 0, as `directory`
  bool leaving = false;
  bool said_waiting = false;
  bool requested = false;  // the same on all ranks
  // As `directory`. Last: its thread, which uses `claim`, `directory` and `retention`, is joined
  // before they are destroyed.
  std::optional<SavePipeline> saving;
  std::optional<MemoryCopies> memory;  // if there are to be any
};

Checkpointer::Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
                           nlohmann::json run, LogFunction log)
    : parts_(std::make_unique<Parts>(group, state, std::move(options), std::move(run),
                                     std::move(log))) {
  auto& p = *parts_;
  if (p.options.directory.empty()) return;
  // An existing step belongs to a fenced-off process or to an abandoned branch, so this run sets it
  // aside.
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::set_aside;
  saving.before_publishing = [&claim = p.claim] { claim.require(); };
  p.directory.emplace(p.options.directory, std::move(saving));
  p.retention.emplace(p.options.directory, p.owner);
  p.retention->remember_across_restarts();
  require_usable(group, p.options, *p.directory);
  const auto hosts = group.all_gather_text(p.owner.host);
  if (state.is_divided()) require_seen_by_all(group, p.options.directory, hosts);
  if (group.rank() == 0) {
    p.timer.emplace(SaveTimerSettings{p.options.every_seconds, p.options.every_auto,
                                      mtbf_of(p.options, hosts)});
    if (!p.options.after_save.empty()) {
      p.after_save.emplace(p.options.after_save,
                           std::chrono::duration<double>(p.options.after_save_limit_seconds),
                           p.options.directory / "after-save.log");
    }
  }
  p.saving.emplace(
      group, state, *p.directory, *p.retention, p.options, p.owner, hosts,
      [&p](std::uint64_t step) { return p.after_save && p.after_save->in_use(step); },
      SaveEvents{
          .over = [&p](const SaveResult& result, double seconds) { p.record(result, seconds); },
          .staged = [&p](double seconds) { p.say_interval(seconds); }},
      p.log);
  if (p.options.copies_in_memory()) {
    p.memory.emplace(group, state, p.options, p.owner, hosts, mtbf_of(p.options, hosts), p.log);
  }
}

Checkpointer::~Checkpointer() = default;

std::optional<Position> Checkpointer::resume(std::uint64_t seed) {
  auto& p = *parts_;
  const bool named = (p.options.resume != "auto" && p.options.resume != "never") ||
                     !p.options.evaluated_directory.empty();
  if (!enabled() && !named) return std::nullopt;
  if (enabled()) {
    p.state.require_storable();
    require_storable(p.run);
  }
  p.claim.claim();
  if (p.timer) p.timer->restart(std::chrono::steady_clock::now());
  if (p.memory) p.memory->open();
  if (p.options.resume == "never") {
    if (enabled()) p.saving->forget_local_saves();
    return std::nullopt;
  }
  if (enabled()) p.saving->adopt_local_saves();
  const auto copy = p.memory ? p.memory->restore(*p.directory) : std::nullopt;
  std::string text;
  if (p.group.rank() == 0) {
    const ResumeSource source{p.group,
                              p.options,
                              p.run,
                              p.owner,
                              p.directory ? &*p.directory : nullptr,
                              p.retention ? &*p.retention : nullptr,
                              p.best,
                              p.log,
                              copy ? &*copy : nullptr};
    if (auto resumed = resume_on_leader(source, p.state)) {
      p.newest = std::move(resumed->checkpoint);
      p.lineage = std::move(resumed->lineage);
      p.newest_parent = resumed->parent;
      p.newest_states = std::move(resumed->states);
      text = std::move(resumed->text);
    }
    end_loading(p.group, text);
  } else {
    text = follow_leader(p.group, p.state);
  }
  if (text.empty()) {
    if (p.group.rank() == 0) {
      p.log.line(fmt::format("{} holds no checkpoint: training starts from the beginning",
                             p.options.directory.string()));
    }
    return std::nullopt;
  }
  p.state.distribute(seed);
  const auto saved = nlohmann::json::parse(text);
  p.state.user().restore(saved.at("user"));
  const auto position = Position::from_json(saved.at("position"));
  p.attempted = SavePoint::of(position);
  p.durable.step = saved.at("durable").get<std::int64_t>();
  if (p.durable.step == position.step) p.durable.epoch = position.epoch;
  p.agreed = p.durable;
  return position;
}

std::optional<Position> Checkpointer::save_copy() {
  auto& p = *parts_;
  p.claim.claim();
  if (p.options.resume == "never") return std::nullopt;  // nor would a start resume from it
  p.saving->adopt_local_saves();
  if (p.memory) {
    p.memory->open();
    const auto problem = p.memory->save(*p.directory);
    if (!problem.empty()) {
      throw RuntimeError(
          fmt::format("the copy in the memory of the nodes could not be saved: {}", problem));
    }
    p.memory->remove();
  }
  const auto text = p.group.broadcast_text(p.group.rank() == 0 ? p.newest_position() : "", 0);
  if (text.empty()) return std::nullopt;
  const auto position = Position::from_json(nlohmann::json::parse(text));
  p.durable = p.agreed = SavePoint::of(position);
  if (p.group.rank() == 0) comm::tell_kept_on_disk(position.step);
  return position;
}

// On rank 0. Empty if there is no checkpoint.
std::string Checkpointer::Parts::newest_position() {
  const auto found = directory->newest_accepted([](const ckpt::Checkpoint&) {});
  if (!found.checkpoint) return {};
  const auto& about = found.checkpoint->manifest().state;
  if (!about.contains("position")) return {};  // not of a training run
  newest = found.checkpoint->path();
  return about.at("position").dump();
}

bool Checkpointer::enabled() const noexcept {
  return parts_->directory.has_value();
}

std::int64_t Checkpointer::last_saved_step() const noexcept {
  return parts_->agreed.step;
}

bool Checkpointer::time_to_save() const {
  const auto& p = *parts_;
  return p.timer && !p.saving->busy() && p.timer->due(std::chrono::steady_clock::now());
}

void Checkpointer::request_save() noexcept {
  parts_->requested = true;
}

bool Checkpointer::due(const Position& position, bool end_of_epoch) const {
  const auto& options = parts_->options;
  const auto step = position.step;
  if (!enabled() || SavePoint::of(position) == parts_->attempted) return false;
  if (parts_->requested || parts_->is_permanent(position)) return true;
  if (options.every_steps > 0 && step % options.every_steps == 0) return true;
  return options.every_epoch && end_of_epoch;
}

bool Checkpointer::Parts::is_permanent(const Position& position) const {
  const auto steps = options.keep_every_steps;
  const auto epochs = options.keep_every_epochs;
  if (steps > 0 && position.step > 0 && position.step % steps == 0) return true;
  const bool end_of_epoch = position.consumed == 0 && position.epoch > 0;
  return epochs > 0 && end_of_epoch && position.epoch % epochs == 0;
}

ckpt::CheckpointInfo Checkpointer::Parts::info_of(const Position& position) const {
  ckpt::CheckpointInfo info;
  info.epoch = static_cast<std::uint64_t>(position.epoch);
  info.world_size = static_cast<std::uint64_t>(group.size());
  info.run_id = owner.text();
  info.state = {{"position", position.to_json()}, {"run", run}};
  info.lineage = lineage;
  info.permanent = is_permanent(position);
  if (lineage.parent == static_cast<std::uint64_t>(position.step)) {
    info.lineage->parent = newest_parent;
  }
  // Only rank 0's values are saved. A run without user values has no such entry.
  if (group.rank() == 0) {
    if (auto values = state.user().values(); !values.empty()) info.state["user"] = values;
  }
  return info;
}

// On rank 0: whether the directory holds this run's checkpoint of the same step, from which this
// process has resumed.
bool Checkpointer::Parts::replaces(const Position& position) const {
  std::error_code ignored;
  return position.step == durable.step &&
         std::filesystem::equivalent(newest.parent_path(), options.directory, ignored);
}

void Checkpointer::save(const Position& position) {
  auto& p = *parts_;
  if (!enabled()) return;
  p.requested = false;
  p.claim.claim();
  p.saving->make_room(p.agreed.step);
  p.agree_on_newest();
  const bool same_step = position.step == p.agreed.step;
  const auto began = std::chrono::steady_clock::now();
  p.begin_save(position);
  p.stall = seconds_since(began);
  if (p.timer) p.timer->restart(std::chrono::steady_clock::now());
  if (p.memory) p.memory->note_checkpoint();
  // What the nodes' own disks hold of a step that is durable counts as needless.
  if (same_step) drain();
}

bool Checkpointer::time_to_copy() const {
  return parts_->memory && parts_->memory->time_to_copy();
}

void Checkpointer::request_copy() noexcept {
  if (parts_->memory) parts_->memory->request();
}

bool Checkpointer::copy_due(const Position& position, bool end_of_epoch) const {
  return parts_->memory && parts_->memory->due(position.step) && !due(position, end_of_epoch);
}

void Checkpointer::copy(const Position& position) {
  auto& p = *parts_;
  const auto began = std::chrono::steady_clock::now();
  const auto arrays = p.state.collect();
  require_same_arrays(p.group, arrays);
  p.memory->start(position.step, p.info_of(position), arrays, began);
}

bool Checkpointer::copying() const noexcept {
  return parts_->memory && parts_->memory->writing();
}

nlohmann::json Checkpointer::copies_summary() const {
  return parts_->memory ? parts_->memory->summary() : nullptr;
}

// Returns as soon as the state may change.
void Checkpointer::Parts::begin_save(const Position& position) {
  const auto arrays = state.collect();
  require_same_arrays(group, arrays);
  if (longest_save == 0) {
    longest_save = static_cast<double>(bytes_of(arrays)) / kGuessedBytesPerSecond;
  }
  attempted = SavePoint::of(position);
  auto info = info_of(position);
  info.replaces_step = group.rank() == 0 && replaces(position);
  if (info.replaces_step && info.lineage) info.lineage->replaced = newest_states;
  saving->start(static_cast<std::uint64_t>(position.step), std::move(info), arrays);
}

bool Checkpointer::writing() const noexcept {
  return parts_->saving && parts_->saving->writing();
}

void Checkpointer::poll(bool anyone_writing, bool anyone_copying) {
  if (!parts_->saving) return;
  if (parts_->memory) parts_->memory->poll(anyone_copying);
  parts_->saving->poll(anyone_writing);
  parts_->report_commands();
}

void Checkpointer::remove_local_saves(std::int64_t step) {
  if (!enabled()) return;
  parts_->saving->remove_local_saves(static_cast<std::uint64_t>(step));
  if (parts_->memory) parts_->memory->remove();
}

void Checkpointer::drain() {
  auto& p = *parts_;
  if (p.saving) p.saving->drain();
  p.agree_on_newest();
  if (p.saving) p.saving->remove_needless(p.agreed.step);
}

// Collective.
void Checkpointer::Parts::agree_on_newest() {
  std::array<std::int64_t, 2> newest_point = {durable.step, durable.epoch};
  group
      .broadcast(comm::buffer_of(std::span<std::int64_t>(newest_point)), 0,
                 "step of the newest checkpoint")
      .wait();
  agreed = {newest_point[0], newest_point[1]};
}

// On rank 0.
void Checkpointer::Parts::record(const SaveResult& result, double seconds) {
  for (const auto& note : result.notes) log.line("checkpoint: " + note);
  if (!result.path.empty()) newest = result.path;
  const auto step = static_cast<std::int64_t>(result.step);
  if (result.problem.empty()) {
    longest_save = std::max(longest_save, stall + seconds);  // with what came before the writing
    if (!saving->locally()) say_interval(seconds);
    if (lineage.parent != result.step) {
      newest_parent = std::exchange(lineage.parent, result.step);
    }
    durable = {step, static_cast<std::int64_t>(result.epoch)};
    comm::tell_kept_on_disk(step);  // the other ranks know it with the next save
    if (after_save) after_save->run(result.path, result.step);
  }
  if (result.fenced) throw UsageError(result.problem);
  failures.record(step, result.problem);
}

// On rank 0, after a save that took `seconds`.
void Checkpointer::Parts::say_interval(double seconds) {
  const auto said = timer->measured({stall, seconds});
  if (!said.empty() && !failures.in_last_save()) log.line("checkpoint: " + said);
}

void Checkpointer::save_last(const Position& position) {
  auto& p = *parts_;
  if (!enabled()) return;
  p.failures.begin_last_save();
  p.saving->drop_before(static_cast<std::uint64_t>(position.step));
  drain();
  const auto wanted = SavePoint::of(position);
  for (int attempt = 0; attempt < kLastAttempts && p.agreed != wanted; ++attempt) {
    if (attempt > 0) {
      std::this_thread::sleep_for(kBetweenAttempts);
      p.saving->avoid_local_disks();  // they may be the reason
    }
    save(position);
    drain();
  }
  p.failures.end_last_save();
  if (p.agreed == wanted) {
    if (p.memory) p.memory->remove();
    return;
  }
  throw RuntimeError(p.group.broadcast_text(
      fmt::format("the checkpoint of step {}, the last one, could not be saved: {}; the newest "
                  "complete checkpoint: {}",
                  position.step, p.failures.problem(),
                  p.newest.empty() ? "none" : p.newest.string()),
      0));
}

void Checkpointer::leave() noexcept {
  parts_->leaving = true;
  if (parts_->saving) parts_->saving->leave();
}

// On rank 0. Only failures of checkpoints from which a run can resume are counted, so a failure
// here causes only a warning.
void Checkpointer::Parts::warn_of_best(const Position& position, const std::string& problem) {
  if (group.rank() != 0 || problem.empty()) return;
  log.warning(
      fmt::format("the best checkpoint, of step {}, was not saved: {}", position.step, problem));
}

void Checkpointer::save_best(const Position& position, const Evaluation& evaluation) {
  auto& p = *parts_;
  if (!enabled() || p.options.keep_best == 0) return;
  const auto step = static_cast<std::uint64_t>(position.step);
  bool wanted = false;
  p.warn_of_best(position, problem_on_leader(p.group, [&] {
                   wanted = p.best.wants(step, p.lineage.run, evaluation);
                 }));
  if (p.group.broadcast_text(wanted ? "save" : "", 0).empty()) return;
  const auto arrays = p.state.collect();
  require_same_arrays(p.group, arrays);
  auto info = p.info_of(position);
  info.permanent = false;
  p.warn_of_best(position,
                 p.best.save(p.group, p.state, step, arrays, std::move(info), evaluation));
}

// On rank 0.
void Checkpointer::Parts::report_commands() {
  if (!after_save) return;
  for (const auto& message : after_save->take_messages()) log.warning(message);
}

// Checks repeatedly and briefly, as DirectoryClaim does: the other ranks must not block in one long
// wait for rank 0.
void Checkpointer::finish_commands() {
  auto& p = *parts_;
  if (p.options.after_save.empty() || !enabled()) return;
  constexpr auto kLook = std::chrono::milliseconds(500);
  const auto begin = std::chrono::steady_clock::now();
  std::string said;
  while (said != kCommandsOver) {
    const auto mine = p.group.rank() == 0 ? p.wait_for_commands(begin, kLook) : std::string();
    said = p.group.broadcast_text(mine, 0);
  }
}

// On rank 0. Returns kCommandsOver, or no text if a command still runs.
std::string Checkpointer::Parts::wait_for_commands(std::chrono::steady_clock::time_point begin,
                                                   std::chrono::milliseconds look) {
  // A job that is over, too, may be told to stop.
  const bool hurry = leaving || StopSignals::received() != 0;
  const double limit = hurry ? std::min(kLeavingSeconds, options.after_save_limit_seconds)
                             : options.after_save_limit_seconds;
  const auto step = after_save->unfinished();
  bool over = !step || after_save->wait(look);
  if (!over && !std::exchange(said_waiting, true)) {
    log.line(
        fmt::format("checkpoint: waiting up to {} for the command after the checkpoint of step {}",
                    rounded_duration(limit), *step));
  }
  if (!over && seconds_since(begin) >= limit) {
    after_save->stop();
    over = true;
    static_cast<void>(after_save->wait(2 * look));
    log.warning(
        fmt::format("the command after the checkpoint of step {} was stopped, because the "
                    "run is over",
                    *step));
  }
  report_commands();
  return over ? kCommandsOver : "";
}

double Checkpointer::longest_save_seconds() const noexcept {
  return parts_->longest_save;
}

const std::filesystem::path& Checkpointer::newest() const noexcept {
  return parts_->newest;
}

const std::filesystem::path& Checkpointer::best() const noexcept {
  return parts_->best.path();
}

}  // namespace ddp::train
