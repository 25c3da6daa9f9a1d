// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/memory_restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "ddp_runtime/train/checkpoint/local/local_saves.h"
#include "ddp_runtime/train/checkpoint/local/shard_transfer.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/local_store.h"

namespace ddp::train {
namespace {

using nlohmann::json;

constexpr const char* kHere = "here";
constexpr const char* kSend = "send";
constexpr const char* kCopy = "copy";

bool is_same(const ckpt::SaveId& a, const ckpt::SaveId& b) {
  return a.step == b.step && a.owner == b.owner;
}

// One restoration, on one rank.
class Restoration {
 public:
  Restoration(comm::Group& group, const NodeStores& stores, const std::vector<std::string>& hosts,
              bool directly, const ckpt::OwnerTag& owner, ckpt::CheckpointDirectory& directory,
              const RunLog& log)
      : group_(group),
        stores_(stores),
        hosts_(hosts),
        directly_(directly),
        owner_(owner),
        directory_(directory),
        log_(log) {}

  std::optional<MemoryCopy> run() {
    list();
    for (;;) {
      const auto text = group_.broadcast_text(group_.rank() == 0 ? next_order() : "", 0);
      if (text.empty()) return std::nullopt;
      const auto order = json::parse(text);
      const auto save = ckpt::SaveId::from_json(order.at("save"));
      const auto way = order.at("way").get<std::string>();
      if (way == kHere) return MemoryCopy{save, std::move(checkpoint_), lineage_, newest_step_};
      if (way == kCopy) return copy_to_directory();
      transfer(save, order.at("holder").get<int>());
    }
  }

 private:
  bool leads(int rank) const { return leader_of(rank, hosts_) == rank; }

  void list() {
    std::vector<std::string> notes;
    try {
      if (leads(group_.rank())) {
        store_.emplace(stores_.directory, stores_.id, directory_.root());
        shards_ = store_->list(notes);
      }
    } catch (const std::exception& e) {
      notes.emplace_back(e.what());
    }
    for (const auto& note : notes) log_.warning(note);
    std::vector<int> leaders;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (leads(rank)) leaders.push_back(rank);
    }
    found_ = collect_found(group_, leaders, shards_);
    if (group_.rank() != 0) return;
    try {
      newest_ = newest_in(directory_);
    } catch (const std::exception&) {
      found_.clear();  // resuming tries again, or says why it cannot
    }
    if (newest_) newest_step_ = newest_->step;
  }

  // On rank 0. What all ranks do next; empty: nothing.
  std::string next_order() {
    for (;;) {
      std::vector<std::string> notes;
      const auto plan = plan_restore(found_, newest_, directly_, notes);
      if (!std::exchange(said_notes_, true)) {
        for (const auto& note : notes) log_.line("checkpoint: " + note);
      }
      if (!plan) return {};
      const auto& save = plan->copy.save;
      json order = {{"save", save.to_json()}};
      if (plan->way == RestorePlan::Way::copy) {
        order["way"] = kCopy;
        return order.dump();
      }
      if (plan->way == RestorePlan::Way::send) {
        log_.line(fmt::format("checkpoint: fetching the copy of step {} from the memory of {}",
                              save.step, hosts_.at(plan->holder)));
        order["way"] = kSend;
        order["holder"] = plan->holder;
        return order.dump();
      }
      if (verify(plan->copy)) {
        order["way"] = kHere;
        return order.dump();
      }
      leave_out_at(0, save, found_);
    }
  }

  // On rank 0.
  bool verify(const AdoptionPlan& plan) {
    try {
      std::vector<ckpt::LocalShard> shards;
      for (const auto& shard : shards_) {
        if (!is_same(shard.save, plan.save)) continue;
        ckpt::Checkpoint::verify_file(store_->file_of(shard).parent_path(), shard.record);
        shards.push_back(shard);
      }
      checkpoint_ = store_->open(shards);
      lineage_ = plan.info.lineage.value();
      if (newest_step_) lineage_.parent = newest_step_;
      return true;
    } catch (const std::exception& e) {
      log_.warning(fmt::format("the copy of step {} in the memory of {} is not used: {}",
                               plan.save.step, hosts_.front(), e.what()));
      return false;
    }
  }

  // From the holder to rank 0. Collective.
  void transfer(const ckpt::SaveId& save, int holder) {
    if (group_.rank() == holder) {
      const auto shard =
          std::ranges::find_if(shards_, [&](const auto& one) { return is_same(one.save, save); });
      send_shard(group_, 0, *store_, *shard);
    }
    if (group_.rank() != 0) return;
    auto received = receive_shard(group_, holder, *store_);
    leave_out_at(static_cast<std::size_t>(holder), save, found_);
    if (received.problem.empty()) {
      found_.front().push_back(found_of(*received.shard));
      shards_.push_back(std::move(*received.shard));
      return;
    }
    log_.warning(fmt::format("the copy of step {} from {} could not be put in the memory of {}: {}",
                             save.step, hosts_.at(static_cast<std::size_t>(holder)), hosts_.front(),
                             received.problem));
  }

  // Collective.
  std::optional<MemoryCopy> copy_to_directory() {
    const auto problem =
        adopt_saves(group_, stores_, owner_, leads(group_.rank()), directory_, log_);
    if (!problem.empty() && group_.rank() == 0) {
      log_.warning(fmt::format("a copy in {} could not be put in {} and is not used: {}",
                               stores_.name, directory_.root().string(), problem));
    }
    return std::nullopt;
  }

  comm::Group& group_;
  const NodeStores& stores_;
  const std::vector<std::string>& hosts_;
  const bool directly_;
  const ckpt::OwnerTag& owner_;
  ckpt::CheckpointDirectory& directory_;
  const RunLog& log_;
  std::optional<ckpt::LocalStore> store_;  // leaders only
  std::vector<ckpt::LocalShard> shards_;   // on this node; leaders only
  // Rank 0:
  std::vector<std::vector<FoundShard>> found_;
  std::optional<NewestCheckpoint> newest_;
  std::optional<std::uint64_t> newest_step_;
  std::optional<ckpt::Checkpoint> checkpoint_;
  ckpt::Lineage lineage_;
  bool said_notes_ = false;
};

}  // namespace

std::optional<RestorePlan> plan_restore(const std::vector<std::vector<FoundShard>>& found,
                                        const std::optional<NewestCheckpoint>& newest,
                                        bool directly, std::vector<std::string>& notes) {
  auto copy = plan_adoption(found, newest, notes, "the nodes' memories");
  if (!copy) return std::nullopt;
  RestorePlan plan{std::move(*copy), RestorePlan::Way::copy};
  if (!directly) return plan;
  std::size_t files = 0;
  for (const auto& list : plan.copy.files) files += list.size();
  if (plan.copy.files.front().size() == files) {
    plan.way = RestorePlan::Way::here;
  } else if (files == 1) {
    plan.way = RestorePlan::Way::send;
    const auto holds = [](const auto& list) { return !list.empty(); };
    plan.holder = static_cast<std::size_t>(std::ranges::find_if(plan.copy.files, holds) -
                                           plan.copy.files.begin());
  }
  return plan;
}

void leave_out_at(std::size_t rank, const ckpt::SaveId& save,
                  std::vector<std::vector<FoundShard>>& found) {
  std::erase_if(found.at(rank), [&](const auto& shard) { return is_same(shard.save, save); });
}

std::optional<MemoryCopy> restore_from_memory(comm::Group& group, const NodeStores& stores,
                                              const std::vector<std::string>& hosts, bool directly,
                                              const ckpt::OwnerTag& owner,
                                              ckpt::CheckpointDirectory& directory,
                                              const RunLog& log) {
  if (stores.id.empty()) return std::nullopt;
  return Restoration(group, stores, hosts, directly, owner, directory, log).run();
}

}  // namespace ddp::train
