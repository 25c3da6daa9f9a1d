// SPDX-License-Identifier: Apache-2.0
// Adds entries to a plan. This file has the rules common to all variables: the precedence of their
// sources, and the treatment of existing values. The rules for a single variable are with its mode
// or framework.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/plan/giver.h"
#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

class PlanBuilder {
 public:
  // Borrows both arguments.
  PlanBuilder(Plan& plan, const Inherited& inherited) : plan_(plan), inherited_(inherited) {}

  // For a variable that the user cannot usefully set: an existing value is overwritten.
  void set(std::string name, std::string value, std::string rule, std::string source);

  // For a variable that the user may set: the user's value is kept, and the value of an earlier
  // plan for this step is repeated.
  void suggest(std::string name, std::string value, std::string rule, std::string source);

  // For a variable that a SPEC or the site may also set, by the precedence of giver_of(). Returns
  // false if none of them sets it, so that the caller must derive the value and suggest() it.
  template <typename T>
  bool set_as_requested(const std::string& name, const std::optional<Chosen<T>>& requested) {
    switch (giver_of(name, requested, inherited_)) {
      case Giver::setting: {
        const std::string origin(origin_name(requested->origin));
        set_marked(name, text_of(requested->value), "requested by " + origin, origin);
        return true;
      }
      case Giver::user:
        return keep_if_users(name);
      case Giver::earlier_plan:
        return repeat_earlier(name);
      case Giver::none:
        break;
    }
    return false;
  }

  // For a variable that the launcher itself sets, but that may be missing or left over from another
  // step. Sets it unless it already has this value.
  void correct(const std::string& name, const std::string& value, std::string rule,
               std::string source);

  // Records the user's own value. Returns false if there is none.
  bool keep_if_users(const std::string& name);

  // Adds a complete entry, such as those of fabric/.
  void add(const PlanEntry& entry);

  // Removes a variable that must not be set.
  void remove(const std::string& name, std::string rule);

  // Removes the variables of an enclosing step's plan that this plan does not have: they name the
  // nodes, ports and devices of that step. Must be called after all variables are decided.
  void remove_left_overs();

  void note(std::string text) { plan_.notes.push_back(std::move(text)); }
  void note_of_node(std::string text) { plan_.node_notes.push_back(std::move(text)); }

  Mode mode() const noexcept { return plan_.mode; }

  // Returns the value of a variable in the plan so far, including a kept value of the user; "" if
  // the plan does not have the variable.
  std::string value_of(const std::string& name) const;

  // Sets the variable that lists, for nested steps, the variables that this plan set. Must be
  // called last.
  void set_marker(const StepFacts& step);

 private:
  static std::string text_of(const std::string& value) { return value; }
  static std::string text_of(std::uint32_t value) { return std::to_string(value); }

  bool repeat_earlier(const std::string& name);
  void set_marked(std::string name, std::string value, std::string rule, std::string source);

  Plan& plan_;
  const Inherited& inherited_;
  std::vector<std::string> marked_;
};

}  // namespace ddp::launch
