#pragma once
// A new plan for a job whose ranks have less memory than it was planned for.
#include <functional>
#include <string>
#include <vector>

#include "pipeline/memory_watch.hpp"
#include "pipeline/start.hpp"

namespace reelmesh::pipeline {

class NewPlans {
 public:
  /// conditions: of the first plan. References must outlive the object.
  NewPlans(const Job& job, const Conditions& conditions, const Devices& found)
      : job_(job), conditions_(conditions), found_(found), watch_(found.device) {}

  MemoryWatch& watch() { return watch_; }

  /// After all ranks have left what they did: whether they plan again, and do not stop. Collective.
  bool wanted_together(const comm::Group& world);

  /// All that was to be done is done: a request that came meanwhile is met. Collective.
  static void withdraw_together(const comm::Group& world);

  /// Plans for these conditions, whose ranks are those of the plan that there is. job: that of
  /// NewPlans, with Order::rank.
  using Make = std::function<void(const Job& job, const Conditions& conditions)>;
  /// The ranks agree on the memory that each of them can have, and plan again for it. They stay in
  /// their order. What the job has loaded must have been released. → one line that says which rank
  /// was short of what, and both plans; it is also in the log. Error(unavailable) on all ranks if
  /// no plan fits, or after max_new_plans. world: in plan order. Collective.
  std::string make_together(const comm::Group& world, JobPlan& planned, const Make& make);

  /// A condition that lasts or comes back is not answered by further plans.
  static constexpr int max_new_plans = 3;
  int made() const { return made_; }

 private:
  std::string shortage_together(const comm::Group& world);
  Conditions conditions_together(const comm::Group& world, const Plan& plan) const;

  const Job& job_;
  const Conditions& conditions_;
  const Devices& found_;
  MemoryWatch watch_;
  int made_ = 0;
  int number_ = 0;  ///< of the last request, by wanted_together()
  // By shortage_together():
  int short_rank_ = 0;  ///< launched rank
  bool within_step_ = false;
};

}  // namespace reelmesh::pipeline
