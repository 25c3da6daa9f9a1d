// SPDX-License-Identifier: Apache-2.0
// The rules for every variable of a fabric plan: values from the user or a configuration file are
// kept, and values from a preset override derived ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "spank_plugin/fabric/plan/plan.h"

namespace ddp::fabric {

// A value that a variable already has, and its origin: "environment" or a file.
struct UserOverride {
  std::string value;
  std::string source;
};

// Returns "NAME='value' (source)", for a message.
std::string shown(const std::string& name, const UserOverride& given);

class PlanBuilder {
 public:
  // All three must outlive the builder.
  PlanBuilder(Plan& plan, const Node& node, const UserVariables& user)
      : plan_(plan), node_(node), user_(user) {}

  // Searches in the libraries' own order: the environment, then the user's file, then the system's.
  // An empty variable counts as unset.
  std::optional<UserOverride> given(const std::string& name) const;

  // Returns the variable's given or planned value; empty if it has neither.
  std::string value_of(const std::string& name) const;

  // Records a given value as kept. Returns false if there is none.
  bool keep(const std::string& name);

  // Returns true if the plan has the variable, or if its value is given, which records it as kept.
  // The caller then need not derive a value.
  bool is_decided(const std::string& name) { return plan_.find(name) != nullptr || keep(name); }

  // Adds the variable unless its value is already decided.
  void set(const std::string& name, const std::string& value, const std::string& rule,
           const std::string& source);

  // Sets the variable although a configuration file does.
  void replace(const std::string& name, const std::string& value, const std::string& rule,
               const std::string& source) {
    plan_.settings.push_back({name, value, rule, source, false});
  }

  void note(std::string text) { plan_.notes.push_back(std::move(text)); }
  void warn(std::string text) { plan_.warnings.push_back(std::move(text)); }

  // Adds a warning of a failure on this node, which the others need not have.
  void warn_of_node(const std::string& text) {
    plan_.node_warnings.push_back(text);
    warn(text);
  }

 private:
  Plan& plan_;
  const Node& node_;
  const UserVariables& user_;
};

}  // namespace ddp::fabric
