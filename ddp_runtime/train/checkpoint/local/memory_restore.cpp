// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/memory_restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

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
  Restoration(const SaveContext& context, const NodeStores& stores,
              ckpt::CheckpointDirectory& directory)
      : context_(context), stores_(stores), directory_(directory) {}

  std::optional<MemoryCopy> run() {
    list();
    for (;;) {
      const auto text = context_.group.broadcast_text(context_.leads() ? next_order() : "", 0);
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
  void list() {
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
    std::vector<int> leaders;
    for (std::size_t rank = 0; rank < context_.hosts.ranks(); ++rank) {
      if (context_.hosts.leads(rank)) leaders.push_back(static_cast<int>(rank));
    }
    found_ = collect_found(context_.group, leaders, shards_);
    if (!context_.leads()) return;
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
      // Only the checkpoint directory knows what a named starting point means.
      const bool directly = context_.options.resume == "auto";
      const auto plan = plan_restore(found_, newest_, directly, notes);
      if (!std::exchange(said_notes_, true)) {
        for (const auto& note : notes) context_.log.line("checkpoint: " + note);
      }
      if (!plan) return {};
      const auto& save = plan->copy.save;
      json order = {{"save", save.to_json()}};
      if (plan->way == RestorePlan::Way::copy) {
        order["way"] = kCopy;
        return order.dump();
      }
      if (plan->way == RestorePlan::Way::send) {
        context_.log.line(
            fmt::format("checkpoint: fetching the copy of step {} from the memory of {}", save.step,
                        context_.hosts.of(plan->holder)));
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
      context_.log.warning(fmt::format("the copy of step {} in the memory of {} is not used: {}",
                                       plan.save.step, context_.hosts.of(0), e.what()));
      return false;
    }
  }

  // From the holder to rank 0. Collective.
  void transfer(const ckpt::SaveId& save, int holder) {
    if (context_.group.rank() == holder) {
      const auto shard =
          std::ranges::find_if(shards_, [&](const auto& one) { return is_same(one.save, save); });
      send_shard(context_.group, 0, *store_, *shard);
    }
    if (!context_.leads()) return;
    auto received = receive_shard(context_.group, holder, *store_);
    leave_out_at(static_cast<std::size_t>(holder), save, found_);
    if (received.problem.empty()) {
      found_.front().push_back(found_of(*received.shard));
      shards_.push_back(std::move(*received.shard));
      return;
    }
    context_.log.warning(
        fmt::format("the copy of step {} from {} could not be put in the memory of {}: {}",
                    save.step, context_.hosts.of(static_cast<std::size_t>(holder)),
                    context_.hosts.of(0), received.problem));
  }

  // Collective.
  std::optional<MemoryCopy> copy_to_directory() {
    const auto problem = adopt_saves(context_, stores_, directory_);
    if (!problem.empty() && context_.leads()) {
      context_.log.warning(fmt::format("a copy in {} could not be put in {} and is not used: {}",
                                       stores_.name, directory_.root().string(), problem));
    }
    return std::nullopt;
  }

  const SaveContext& context_;
  const NodeStores& stores_;
  ckpt::CheckpointDirectory& directory_;
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

std::optional<MemoryCopy> restore_from_memory(const SaveContext& context, const NodeStores& stores,
                                              ckpt::CheckpointDirectory& directory) {
  if (stores.id.empty()) return std::nullopt;
  return Restoration(context, stores, directory).run();
}

}  // namespace ddp::train
