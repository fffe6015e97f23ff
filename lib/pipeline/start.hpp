#pragma once
// How a job begins on its ranks, to make clips or to train.
#include "job/job_plan.hpp"
#include "job/machine.hpp"

namespace reelmesh::pipeline {

/// What a rank computes with.
struct Devices {
  Machine machine;
  int threads = 1;
  Device device;
  comm::Group launched;  ///< the ranks as launched; they can exchange tensors on the devices
};

/// Sets threads and products as the job says. Errors as find_device, agree_on_products,
/// require_like_gpus, require_like_processors and comm::Group::use_device. Collective.
Devices find_devices_together(const comm::Group& ranks, const Job& job);

/// The ranks agree on the conditions, so that all of them compute the same plan. Collective.
Conditions agree_on_conditions(const Job& job, const comm::Group& world, const Devices& found);

/// Refuses a plan that does not fit the limits that the job gives, or the hosts; warns if it does
/// not fit the free memory of GPUs, and of ranks that have nothing to do. On GPUs the ranks agree
/// on algorithms of the plan's convolutions. → the ranks in the order of the plan. Errors as
/// require_fit, require_host_memory and agree_on_convolutions. Collective.
comm::Group require_plan_fits_together(const Job& job, const JobPlan& planned,
                                       const Conditions& conditions, const Devices& found);

}  // namespace reelmesh::pipeline
