// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/checkpointer.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/after_save.h"
#include "ddp_runtime/train/checkpoint/checkpoint_agreement.h"
#include "ddp_runtime/train/checkpoint/checkpoint_line.h"
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"
#include "ddp_runtime/train/checkpoint/directory/directory_claim.h"
#include "ddp_runtime/train/checkpoint/directory/run_directory.h"
#include "ddp_runtime/train/checkpoint/last_commands.h"
#include "ddp_runtime/train/checkpoint/local/memory_copies.h"
#include "ddp_runtime/train/checkpoint/resume/checkpoint_load.h"
#include "ddp_runtime/train/checkpoint/resume/resumed_run.h"
#include "ddp_runtime/train/checkpoint/save_failures.h"
#include "ddp_runtime/train/checkpoint/save_pipeline.h"
#include "ddp_runtime/train/checkpoint/save_schedule.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"

namespace ddp::train {
namespace {

constexpr int kLastAttempts = 3;

// A file server can take longer to restart, but a job that must exit cannot wait longer.
constexpr auto kBetweenAttempts = std::chrono::milliseconds(500);

// Collective. Throws UsageError on all ranks if the run cannot save to the directory.
void require_usable(const SaveContext& context, const ckpt::CheckpointDirectory& directory) {
  const auto& path = context.options.directory;
  std::string mine;
  if (context.leads()) {
    mine = why_misplaced(path);
    if (mine.empty()) mine = why_not_writable(path, "checkpoint");
    // A run that starts over in this directory would collide or mix with the existing steps.
    if (mine.empty() && context.options.resume == "never" && !directory.candidates().empty()) {
      mine = fmt::format(
          "{} already holds checkpoints; use --resume auto to resume from them, or another "
          "--checkpoint-dir",
          path.string());
    }
  }
  const std::string problem = context.group.broadcast_text(mine, 0);
  if (!problem.empty()) throw UsageError(problem);
  if (context.state.is_divided()) require_seen_by_all(context.group, path, context.hosts);
}

// Collective. An existing step belongs to a fenced-off process or to an abandoned branch, so this
// run sets it aside.
ckpt::CheckpointDirectory open_directory(const SaveContext& context, const DirectoryClaim& claim) {
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::set_aside;
  saving.before_publishing = [&claim] { claim.require(); };
  ckpt::CheckpointDirectory directory(context.options.directory, std::move(saving));
  require_usable(context, directory);
  return directory;
}

// Collective. A run that does not save need not know where its ranks are.
RankHosts hosts_of(comm::Group& group, const CheckpointOptions& options,
                   const ckpt::OwnerTag& owner) {
  return options.directory.empty() ? RankHosts() : RankHosts(group.all_gather_text(owner.host));
}

}  // namespace

// What only a run that saves has.
struct Checkpointer::Saving {
  // Collective.
  Saving(const SaveContext& context, const DirectoryClaim& claim, SaveEvents events)
      : directory(open_directory(context, claim)),
        retention(context.options.directory, context.owner),
        schedule(context.options, context.hosts.nodes()),
        failures(context.log),
        pipeline(context, target, std::move(events)) {
    retention.remember_across_restarts();
    const auto& options = context.options;
    if (context.leads() && !options.after_save.empty()) {
      after_save.emplace(options.after_save,
                         std::chrono::duration<double>(options.after_save_limit_seconds),
                         options.directory / "after-save.log");
    }
    if (options.copies_in_memory()) memory.emplace(context);
  }

  ckpt::CheckpointDirectory directory;
  ckpt::Retention retention;
  std::optional<AfterSave> after_save;  // rank 0
  SaveTarget target{directory, retention,
                    [this](std::uint64_t step) { return after_save && after_save->in_use(step); }};
  SaveSchedule schedule;
  SaveFailures failures;  // rank 0
  // Their threads, which use the members above, are joined before these are destroyed.
  SavePipeline pipeline;
  std::optional<MemoryCopies> memory;  // if there are to be any
};

struct Checkpointer::Parts {
  Parts(comm::Group& group, TrainingState& its_state, CheckpointOptions its_options,
        nlohmann::json its_run, LogFunction its_log)
      : state(its_state),
        options(std::move(its_options)),
        run(std::move(its_run)),
        log(std::move(its_log)),
        hosts(hosts_of(group, options, owner)),
        context{group, state, options, run, owner, hosts, log},
        claim(group, options.directory, owner, log),
        best(context, claim) {}

  SaveEvents events();
  ckpt::CheckpointInfo info_of(const Position& position) const;
  std::vector<StateArray> collect() const;
  void begin_save(const Position& position);
  void record(const SaveResult& result, double seconds);
  void say_interval(double seconds);
  void agree_on_newest();
  std::string resume_text(const MemoryCopy* copy);
  std::string newest_position();
  void warn_of_best(const Position& position, const std::string& problem);

  TrainingState& state;
  const CheckpointOptions options;
  const nlohmann::json run;
  const RunLog log;
  const ckpt::OwnerTag owner = this_owner();
  const RankHosts hosts;
  const SaveContext context;
  DirectoryClaim claim;
  BestCheckpoint best;
  CheckpointLine line;  // rank 0
  SavePoint agreed;     // line.durable() as all ranks know it, as of the last drain()
  bool leaving = false;
  std::optional<Saving> saving;  // last: its threads use `claim`
};

Checkpointer::Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
                           nlohmann::json run, LogFunction log)
    : parts_(std::make_unique<Parts>(group, state, std::move(options), std::move(run),
                                     std::move(log))) {
  auto& p = *parts_;
  if (!p.options.directory.empty()) p.saving.emplace(p.context, p.claim, p.events());
}

Checkpointer::~Checkpointer() = default;

SaveEvents Checkpointer::Parts::events() {
  return {.over = [this](const SaveResult& result, double seconds) { record(result, seconds); },
          .staged = [this](double seconds) { say_interval(seconds); }};
}

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
  std::optional<MemoryCopy> copy;
  if (p.saving) {
    auto& saving = *p.saving;
    saving.schedule.start(Clock::now());
    if (saving.memory) saving.memory->open();
    if (p.options.resume == "never") {
      saving.pipeline.forget_local_saves();
    } else {
      saving.pipeline.adopt_local_saves();
      if (saving.memory) copy = saving.memory->restore(saving.directory);
    }
  }
  if (p.options.resume == "never") return std::nullopt;
  const auto text = p.context.leads() ? p.resume_text(copy ? &*copy : nullptr)
                                      : follow_leader(p.context.group, p.state);
  if (text.empty()) return std::nullopt;
  p.state.distribute(seed);
  const auto saved = nlohmann::json::parse(text);
  p.state.user().restore(saved.at("user"));
  const auto position = Position::from_json(saved.at("position"));
  SavePoint durable{saved.at("durable").get<std::int64_t>()};
  if (durable.step == position.step) durable.epoch = position.epoch;
  p.line.set_durable(durable);
  p.agreed = durable;
  if (p.saving) p.saving->schedule.resumed_at(SavePoint::of(position));
  return position;
}

// On rank 0, while the others follow. Empty if there is nothing to resume from.
std::string Checkpointer::Parts::resume_text(const MemoryCopy* copy) {
  const ResumeSource source{context, saving ? &saving->target : nullptr, best, copy};
  const auto resumed = resume_on_leader(source, state);
  if (resumed) line.continue_after(*resumed);
  auto text = resumed ? resumed->text : std::string();
  end_loading(context.group, text);
  if (text.empty()) {
    log.line(fmt::format("{} holds no checkpoint: training starts from the beginning",
                         options.directory.string()));
  }
  return text;
}

std::optional<Position> Checkpointer::save_copy() {
  auto& p = *parts_;
  p.claim.claim();
  if (p.options.resume == "never") return std::nullopt;  // nor would a start resume from it
  auto& saving = *p.saving;
  saving.pipeline.adopt_local_saves();
  if (saving.memory) {
    saving.memory->open();
    const auto problem = saving.memory->save(saving.directory);
    if (!problem.empty()) {
      throw RuntimeError(
          fmt::format("the copy in the memory of the nodes could not be saved: {}", problem));
    }
    saving.memory->remove();
  }
  const auto text = p.context.group.broadcast_text(p.context.leads() ? p.newest_position() : "", 0);
  if (text.empty()) return std::nullopt;
  const auto position = Position::from_json(nlohmann::json::parse(text));
  p.agreed = SavePoint::of(position);
  p.line.set_durable(p.agreed);
  if (p.context.leads()) comm::tell_kept_on_disk(position.step);
  return position;
}

// On rank 0. Empty if there is no checkpoint.
std::string Checkpointer::Parts::newest_position() {
  const auto found = saving->directory.newest_accepted([](const ckpt::Checkpoint&) {});
  if (!found.checkpoint) return {};
  const auto& about = found.checkpoint->manifest().state;
  if (!about.contains("position")) return {};  // not of a training run
  line.note_newest(found.checkpoint->path());
  return about.at("position").dump();
}

bool Checkpointer::enabled() const noexcept {
  return parts_->saving.has_value();
}

std::int64_t Checkpointer::last_saved_step() const noexcept {
  return parts_->agreed.step;
}

bool Checkpointer::time_to_save() const {
  const auto& p = *parts_;
  return p.saving && p.context.leads() && !p.saving->pipeline.busy() &&
         p.saving->schedule.time_to_save(Clock::now());
}

void Checkpointer::request_save() noexcept {
  if (parts_->saving) parts_->saving->schedule.request();
}

bool Checkpointer::due(const Position& position, bool end_of_epoch) const {
  return parts_->saving && parts_->saving->schedule.due(position, end_of_epoch);
}

ckpt::CheckpointInfo Checkpointer::Parts::info_of(const Position& position) const {
  ckpt::CheckpointInfo info;
  info.epoch = static_cast<std::uint64_t>(position.epoch);
  info.world_size = static_cast<std::uint64_t>(context.group.size());
  info.run_id = owner.text();
  info.state = {{"position", position.to_json()}, {"run", run}};
  info.lineage = line.lineage_at(static_cast<std::uint64_t>(position.step));
  info.permanent = saving->schedule.keeps(position);
  // Only rank 0's values are saved. A run without user values has no such entry.
  if (context.leads()) {
    if (auto values = state.user().values(); !values.empty()) info.state["user"] = values;
  }
  return info;
}

// Collective.
std::vector<StateArray> Checkpointer::Parts::collect() const {
  auto arrays = state.collect();
  require_same_arrays(context.group, arrays);
  return arrays;
}

void Checkpointer::save(const Position& position) {
  auto& p = *parts_;
  if (!enabled()) return;
  auto& saving = *p.saving;
  p.claim.claim();
  saving.pipeline.make_room(p.agreed.step);
  p.agree_on_newest();
  const bool same_step = position.step == p.agreed.step;
  const auto began = Clock::now();
  p.begin_save(position);
  saving.schedule.began(seconds_since(began), Clock::now());
  if (saving.memory) saving.memory->note_checkpoint();
  // What the nodes' own disks hold of a step that is durable counts as needless.
  if (same_step) drain();
}

bool Checkpointer::time_to_copy() const {
  return parts_->saving && parts_->saving->memory && parts_->saving->memory->time_to_copy();
}

void Checkpointer::request_copy() noexcept {
  if (parts_->saving && parts_->saving->memory) parts_->saving->memory->request();
}

bool Checkpointer::copy_due(const Position& position, bool end_of_epoch) const {
  return parts_->saving && parts_->saving->memory && parts_->saving->memory->due(position.step) &&
         !due(position, end_of_epoch);
}

void Checkpointer::copy(const Position& position) {
  auto& p = *parts_;
  const auto began = Clock::now();
  const auto arrays = p.collect();
  p.saving->memory->start(position.step, p.info_of(position), arrays, began);
}

bool Checkpointer::copying() const noexcept {
  return parts_->saving && parts_->saving->memory && parts_->saving->memory->writing();
}

nlohmann::json Checkpointer::copies_summary() const {
  return parts_->saving && parts_->saving->memory ? parts_->saving->memory->summary() : nullptr;
}

// Returns as soon as the state may change.
void Checkpointer::Parts::begin_save(const Position& position) {
  const auto arrays = collect();
  saving->schedule.begin(SavePoint::of(position), bytes_of(arrays));
  auto info = info_of(position);
  if (context.leads()) line.replace(position.step, options.directory, info);
  saving->pipeline.start(static_cast<std::uint64_t>(position.step), std::move(info), arrays);
}

bool Checkpointer::writing() const noexcept {
  return parts_->saving && parts_->saving->pipeline.writing();
}

void Checkpointer::poll(bool anyone_writing, bool anyone_copying) {
  if (!parts_->saving) return;
  auto& saving = *parts_->saving;
  if (saving.memory) saving.memory->poll(anyone_copying);
  saving.pipeline.poll(anyone_writing);
  if (saving.after_save) report_commands(parts_->context, *saving.after_save);
}

void Checkpointer::remove_local_saves(std::int64_t step) {
  if (!enabled()) return;
  parts_->saving->pipeline.remove_local_saves(static_cast<std::uint64_t>(step));
  if (parts_->saving->memory) parts_->saving->memory->remove();
}

void Checkpointer::drain() {
  auto& p = *parts_;
  if (p.saving) p.saving->pipeline.drain();
  p.agree_on_newest();
  if (p.saving) p.saving->pipeline.remove_needless(p.agreed.step);
}

// Collective.
void Checkpointer::Parts::agree_on_newest() {
  const auto mine = line.durable();
  std::array<std::int64_t, 2> newest_point = {mine.step, mine.epoch};
  context.group
      .broadcast(comm::buffer_of(std::span<std::int64_t>(newest_point)), 0,
                 "step of the newest checkpoint")
      .wait();
  agreed = {newest_point[0], newest_point[1]};
}

// On rank 0.
void Checkpointer::Parts::record(const SaveResult& result, double seconds) {
  for (const auto& note : result.notes) log.line("checkpoint: " + note);
  line.add(result);
  const auto step = static_cast<std::int64_t>(result.step);
  if (result.problem.empty()) {
    saving->schedule.completed(seconds);
    if (!saving->pipeline.locally()) say_interval(seconds);
    comm::tell_kept_on_disk(step);  // the other ranks know it with the next save
    if (saving->after_save) saving->after_save->run(result.path, result.step);
  }
  if (result.fenced) throw UsageError(result.problem);
  saving->failures.record(step, result.problem);
}

// On rank 0, after a save that took `seconds`.
void Checkpointer::Parts::say_interval(double seconds) {
  const auto said = saving->schedule.measured(seconds);
  if (!said.empty() && !saving->failures.in_last_save()) log.line("checkpoint: " + said);
}

void Checkpointer::save_last(const Position& position) {
  auto& p = *parts_;
  if (!enabled()) return;
  auto& saving = *p.saving;
  saving.failures.begin_last_save();
  saving.pipeline.drop_before(static_cast<std::uint64_t>(position.step));
  drain();
  const auto wanted = SavePoint::of(position);
  for (int attempt = 0; attempt < kLastAttempts && p.agreed != wanted; ++attempt) {
    if (attempt > 0) {
      std::this_thread::sleep_for(kBetweenAttempts);
      saving.pipeline.avoid_local_disks();  // they may be the reason
    }
    save(position);
    drain();
  }
  saving.failures.end_last_save();
  if (p.agreed == wanted) {
    if (saving.memory) saving.memory->remove();
    return;
  }
  const auto& newest = p.line.newest();
  throw RuntimeError(p.context.group.broadcast_text(
      fmt::format("the checkpoint of step {}, the last one, could not be saved: {}; the newest "
                  "complete checkpoint: {}",
                  position.step, saving.failures.problem(),
                  newest.empty() ? "none" : newest.string()),
      0));
}

void Checkpointer::leave() noexcept {
  parts_->leaving = true;
  if (parts_->saving) parts_->saving->pipeline.leave();
}

// On rank 0. Only failures of checkpoints from which a run can resume are counted, so a failure
// here causes only a warning.
void Checkpointer::Parts::warn_of_best(const Position& position, const std::string& problem) {
  if (!context.leads() || problem.empty()) return;
  log.warning(
      fmt::format("the best checkpoint, of step {}, was not saved: {}", position.step, problem));
}

void Checkpointer::save_best(const Position& position, const Evaluation& evaluation) {
  auto& p = *parts_;
  if (!enabled() || !p.options.keep_best) return;
  const auto step = static_cast<std::uint64_t>(position.step);
  bool wanted = false;
  p.warn_of_best(position, problem_on_leader(p.context.group, [&] {
                   wanted = p.best.wants(step, p.line.run(), evaluation);
                 }));
  if (p.context.group.broadcast_text(wanted ? "save" : "", 0).empty()) return;
  const auto arrays = p.collect();
  auto info = p.info_of(position);
  info.permanent = false;
  p.warn_of_best(position, p.best.save(step, arrays, std::move(info), evaluation));
}

void Checkpointer::finish_commands() {
  auto& p = *parts_;
  if (p.options.after_save.empty() || !enabled()) return;
  auto& commands = p.saving->after_save;
  train::finish_commands(p.context, commands ? &*commands : nullptr, p.leaving);
}

double Checkpointer::longest_save_seconds() const noexcept {
  return parts_->saving ? parts_->saving->schedule.longest_save_seconds() : 0;
}

const std::filesystem::path& Checkpointer::newest() const noexcept {
  return parts_->line.newest();
}

const std::filesystem::path& Checkpointer::best() const noexcept {
  return parts_->best.path();
}

}  // namespace ddp::train
