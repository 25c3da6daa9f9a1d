// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/errors.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/directory/local_store.h"

namespace ddp::train {
namespace {

using nlohmann::json;

// The shards of one save, over all ranks.
struct FoundSave {
  const FoundShard* first = nullptr;  // any
  const ckpt::CheckpointInfo* info = nullptr;
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> files;  // -> rank, bytes

  bool complete() const { return info != nullptr && files.size() == first->shards; }
};

// Whether the save was reached from the newest checkpoint. A save whose checkpoints were deleted,
// or left for another branch, was not.
bool continues(const FoundSave& save, const std::optional<NewestCheckpoint>& newest) {
  const auto& lineage = save.info->lineage;
  if (!lineage) return false;
  if (!newest) {
    if (!lineage->parent) return true;
    return !lineage->origins.empty() && lineage->origins.back().step == *lineage->parent;
  }
  if (save.first->save.step <= newest->step) return false;
  if (!newest->lineage || newest->lineage->run != lineage->run) return false;
  // One process saves one sequence, and copies only some of it.
  return newest->run_id == save.first->save.owner.text() || lineage->parent == newest->step;
}

std::map<std::pair<std::uint64_t, std::string>, FoundSave> saves_in(
    const std::vector<std::vector<FoundShard>>& found) {
  std::map<std::pair<std::uint64_t, std::string>, FoundSave> saves;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    for (const auto& shard : found[rank]) {
      auto& save = saves[{shard.save.step, shard.save.owner.text()}];
      if (save.first == nullptr) save.first = &shard;
      if (shard.info) save.info = &*shard.info;
      // If the directory is on a shared disk after all, several ranks find the same file.
      save.files.try_emplace(shard.file, rank, shard.bytes);
    }
  }
  return saves;
}

json to_json(const ckpt::LocalShard& shard) {
  json result = {{"save", shard.save.to_json()},
                 {"shards", shard.shards},
                 {"file", shard.record.file.name},
                 {"bytes", shard.record.file.size}};
  if (shard.info) result["info"] = ckpt::info_to_text(shard.save, *shard.info);
  return result;
}

FoundShard found_from_json(const json& value) {
  FoundShard shard{ckpt::SaveId::from_json(value.at("save")),
                   value.at("shards").get<std::uint64_t>(),
                   value.at("file").get<std::string>(),
                   value.at("bytes").get<std::uint64_t>(),
                   {}};
  if (value.contains("info")) {
    shard.info = ckpt::info_from_text(value.at("info").get<std::string>());
  }
  return shard;
}

// How copying a save ended: neither if it is in the directory.
struct Outcome {
  bool damaged = false;  // its shards are
  std::string problem;   // why the directory could not be written
};

void leave_out(const ckpt::SaveId& save, std::vector<std::vector<FoundShard>>& found) {
  for (auto& list : found) {
    std::erase_if(list, [&](const FoundShard& shard) {
      return shard.save.step == save.step && shard.save.owner == save.owner;
    });
  }
}

// One adoption, on one rank.
class Adoption {
 public:
  Adoption(const SaveContext& context, const NodeStores& stores,
           ckpt::CheckpointDirectory& directory)
      : context_(context), stores_(stores), directory_(directory) {}

  // Lists this node's shards, if this is its leader, and sends them to all ranks.
  std::vector<std::vector<FoundShard>> find() {
    std::vector<std::string> notes;
    try {
      if (context_.leads_node()) {
        store_.emplace(stores_.directory, stores_.id, directory_.root());
        shards_ = store_->list(notes);
      }
    } catch (const std::exception& e) {
      notes.emplace_back(e.what());
    }
    for (const auto& note : notes) context_.log.warning(note);
    std::vector<std::vector<FoundShard>> found;
    for (const auto& text : context_.group.all_gather_text(found_to_text(shards_))) {
      found.push_back(found_from_text(text));
    }
    return found;
  }

  // On rank 0: the text that tells all ranks what to copy; "" for nothing.
  std::string begin(const std::vector<std::vector<FoundShard>>& found) {
    if (!context_.leads()) return {};
    const bool again = plan_.has_value();
    std::vector<std::string> notes;
    plan_ = plan_adoption(found, newest_in(directory_), notes, stores_.name);
    if (!again) {
      for (const auto& note : notes) context_.log.line("checkpoint: " + note);
    }
    if (!plan_) return {};
    context_.log.line(fmt::format(
        "checkpoint: copying step {} ({:.0f} MiB) from {}, where an earlier process of this run "
        "left it",
        plan_->save.step, static_cast<double>(plan_->bytes) / 1048576, stores_.name));
    try {
      const auto id = directory_.begin(plan_->save.step, context_.owner);
      return json{{"id", id.to_json()}, {"save", plan_->save.to_json()}, {"files", plan_->files}}
          .dump();
    } catch (const std::exception& e) {
      return json{{"problem", e.what()}}.dump();
    }
  }

  // Copies this rank's files of the plan and commits. The result is the same on all ranks.
  Outcome carry_out(const json& plan) {
    if (plan.contains("problem")) return {false, plan.at("problem").get<std::string>()};
    const auto id = ckpt::SaveId::from_json(plan.at("id"));
    const auto mine = copy(id, plan);
    std::vector<ckpt::FileRecord> records;
    std::string damage;
    std::string problem;
    const auto reports = context_.group.all_gather_text(mine.dump());
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const auto report = json::parse(reports[rank]);
      for (const auto& record : report.at("records")) {
        records.push_back(ckpt::record_from_json(record));
      }
      for (auto [key, text] : {std::pair{"damage", &damage}, {"problem", &problem}}) {
        if (text->empty() && report.contains(key)) {
          *text = fmt::format("rank {}: {}", rank, report.at(key).get<std::string>());
        }
      }
    }
    Outcome outcome{false, problem};
    if (context_.leads() && problem.empty()) outcome = finish(id, records, damage);
    if (context_.leads() && !outcome.problem.empty()) directory_.abandon(id);
    const auto agreed = json::parse(
        context_.group.broadcast_text(json{outcome.damaged, outcome.problem}.dump(), 0));
    return {agreed.at(0).get<bool>(), agreed.at(1).get<std::string>()};
  }

 private:
  json copy(const ckpt::SaveId& id, const json& plan) {
    json report = {{"records", json::array()}};
    const auto files = plan.at("files").at(context_.rank());
    const auto save = ckpt::SaveId::from_json(plan.at("save"));
    try {
      for (const auto& shard : shards_) {
        const bool wanted =
            shard.save.step == save.step && shard.save.owner == save.owner &&
            std::find(files.begin(), files.end(), shard.record.file.name) != files.end();
        if (!wanted) continue;
        copy_from_disk(id, shard);
        directory_.read_back(id, shard.record);
        report["records"].push_back(ckpt::record_to_json(shard.record));
      }
    } catch (const ckpt::DamagedError& e) {
      report["damage"] = e.what();
    } catch (const std::exception& e) {
      report["problem"] = e.what();
    }
    return report;
  }

  // An error of the node's disk says nothing about the directory.
  void copy_from_disk(const ckpt::SaveId& id, const ckpt::LocalShard& shard) {
    try {
      directory_.copy_shard(id, shard.record, store_->file_of(shard));
    } catch (const ckpt::UnreadableError& e) {
      throw ckpt::DamagedError(e.what());
    }
  }

  // On rank 0.
  Outcome finish(const ckpt::SaveId& id, const std::vector<ckpt::FileRecord>& records,
                 const std::string& damage) {
    if (!damage.empty()) {
      directory_.abandon(id);
      context_.log.warning(fmt::format("the save of step {} from {} is damaged and is not used: {}",
                                       id.step, stores_.name, damage));
      return {true, {}};
    }
    try {
      for (const auto& note : directory_.commit(id, records, plan_->info).notes) {
        context_.log.line("checkpoint: " + note);
      }
    } catch (const std::exception& e) {
      return {false, e.what()};
    }
    return {};
  }

  const SaveContext& context_;
  const NodeStores& stores_;
  ckpt::CheckpointDirectory& directory_;
  std::optional<ckpt::LocalStore> store_;  // leaders only
  std::vector<ckpt::LocalShard> shards_;   // on this node; leaders only
  std::optional<AdoptionPlan> plan_;       // rank 0
};

}  // namespace

NodeStores local_stores(const SaveContext& context) {
  std::string id;
  if (context.leads()) id = ckpt::local_store_id(context.options.directory).value_or("");
  return {context.options.local_directory, context.group.broadcast_text(id, 0),
          "the nodes' own disks"};
}

FoundShard found_of(const ckpt::LocalShard& shard) {
  return {shard.save, shard.shards, shard.record.file.name, shard.record.file.size, shard.info};
}

std::string found_to_text(const std::vector<ckpt::LocalShard>& shards) {
  auto list = json::array();
  for (const auto& shard : shards) list.push_back(to_json(shard));
  return list.dump();
}

std::vector<FoundShard> found_from_text(const std::string& text) {
  std::vector<FoundShard> found;
  for (const auto& shard : json::parse(text)) found.push_back(found_from_json(shard));
  return found;
}

std::optional<NewestCheckpoint> newest_in(const ckpt::CheckpointDirectory& directory) {
  for (const auto& candidate : directory.candidates()) {
    try {
      const auto manifest = ckpt::Checkpoint::open(candidate.path).manifest();
      return NewestCheckpoint{manifest.step, manifest.run_id, manifest.lineage};
    } catch (const ckpt::DamagedError&) {
      // Resuming skips it, too.
    }
  }
  return std::nullopt;
}

std::optional<AdoptionPlan> plan_adoption(const std::vector<std::vector<FoundShard>>& found,
                                          const std::optional<NewestCheckpoint>& newest,
                                          std::vector<std::string>& notes,
                                          const std::string& where) {
  const auto saves = saves_in(found);
  for (auto entry = saves.rbegin(); entry != saves.rend(); ++entry) {  // the latest step first
    const auto& save = entry->second;
    const auto step = save.first->save.step;
    if (!save.complete()) {
      if (!newest || step > newest->step) {
        notes.push_back(fmt::format(
            "{} hold {} of the {} files of a later save, step {}, which is not used; it is whole "
            "only on the nodes that wrote it",
            where, save.files.size(), save.first->shards, step));
      }
      continue;
    }
    if (!continues(save, newest)) continue;
    AdoptionPlan plan{save.first->save, *save.info, 0, {}};
    plan.files.resize(found.size());
    for (const auto& [file, place] : save.files) {
      plan.files[place.first].push_back(file);
      plan.bytes += place.second;
    }
    return plan;
  }
  return std::nullopt;
}

std::string adopt_saves(const SaveContext& context, const NodeStores& stores,
                        ckpt::CheckpointDirectory& directory) {
  if (stores.id.empty()) return {};
  Adoption adoption(context, stores, directory);
  auto found = adoption.find();
  for (;;) {
    const auto text = context.group.broadcast_text(adoption.begin(found), 0);
    if (text.empty()) return {};
    const auto plan = json::parse(text);
    const auto outcome = adoption.carry_out(plan);
    if (!outcome.problem.empty()) return outcome.problem;
    if (!outcome.damaged) return {};
    leave_out(ckpt::SaveId::from_json(plan.at("save")), found);  // the one before it may be whole
  }
}

void remove_local_saves(const SaveContext& context, std::uint64_t step) {
  const auto stores = local_stores(context);
  if (stores.id.empty() || !context.leads_node()) return;
  try {
    ckpt::LocalStore(stores.directory, stores.id, context.options.directory).remove_up_to(step);
  } catch (const std::exception&) {
    // Only space is lost.
  }
}

}  // namespace ddp::train
