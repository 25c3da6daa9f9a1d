#pragma once
// Adds entries to a plan. The rules that hold for any variable are here: who may set it, and what
// happens to a value that is there already. Those of one variable are with its mode or framework.

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/giver.h"
#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/plan.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

class PlanBuilder {
 public:
  // Borrows both.
  PlanBuilder(Plan& plan, const Inherited& inherited) : plan_(plan), inherited_(inherited) {}

  // A variable that no user sets with success: whatever is there is overwritten.
  void set(std::string name, std::string value, std::string rule, std::string source);

  // A variable that the user may set: a value of the user's is kept, one of an earlier plan for
  // this step is repeated.
  void suggest(std::string name, std::string value, std::string rule, std::string source);

  // The same for a variable that a SPEC or the site may set, too, by the precedence of giver_of().
  // False if nothing gives it a value, so that it must be derived, and suggested.
  template <typename T>
  bool set_as_requested(const std::string& name, const std::optional<Chosen<T>>& requested) {
    switch (giver_of(name, requested, inherited_)) {
      case Giver::setting: {
        const std::string origin(origin_name(requested->origin));
        set_marked(name, text_of(requested->value), "asked for by " + origin, origin);
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

  // A variable of the launcher's own that may be missing, or be about another step: set unless it
  // has this value already.
  void correct(const std::string& name, const std::string& value, std::string rule,
               std::string source);

  // Shows the user's own value; false if there is none.
  bool keep_if_users(const std::string& name);

  // An entry that was made elsewhere, by the same rules.
  void add(const PlanEntry& entry);

  // Takes away a variable that is there and must not be.
  void remove(const std::string& name, std::string rule);

  // The same, if it was set by the plan of a step around this one.
  void remove_left_over(const std::string& name, std::string rule);

  void note(std::string text) { plan_.notes.push_back(std::move(text)); }
  void note_of_node(std::string text) { plan_.node_notes.push_back(std::move(text)); }

  Mode mode() const noexcept { return plan_.mode; }

  // The value that the plan has for a variable so far, the user's if it was kept; "" for none.
  std::string value_of(const std::string& name) const;

  // Last of all: the variable that tells steps inside this one what was set here.
  void set_marker(const StepFacts& step);

 private:
  static std::string text_of(const std::string& value) { return value; }
  static std::string text_of(std::uint16_t value) { return std::to_string(value); }

  bool repeat_earlier(const std::string& name);
  void set_marked(std::string name, std::string value, std::string rule, std::string source);

  Plan& plan_;
  const Inherited& inherited_;
  std::vector<std::string> marked_;
};

}  // namespace ddp::launch
