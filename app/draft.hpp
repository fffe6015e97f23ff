#pragma once
// From options as text to a job: what run, train and the plans have in common.
#include <boost/program_options/options_description.hpp>
#include <string>
#include <vector>

#include "help.hpp"
#include "job/options.hpp"
#include "job/values.hpp"

namespace reelmesh::app {

/// The options for Boost's parser.
boost::program_options::options_description known_job_options(JobKind kind);
/// The keys given, and the defaults of the others. Error(usage) if one is given twice.
Draft draft_of_keys(JobKind kind, const std::vector<Given>& givens);
/// The job from the command line and the file of --config or --from; clips only from the latter.
/// kind: any if the options decide.
Draft read_draft(JobKind kind, const std::vector<Given>& givens,
                 const std::vector<std::string>& operands);
/// Adds the clips of the prompts that are given, each as often as prompt.repeat says.
void add_clips(Draft& draft);
/// The clips that a training makes.
void add_sampled_clips(Job& job);
/// As --help prints it.
HelpLine help_of(const Option& key);
HelpLine help_of(std::string_view key);

}  // namespace reelmesh::app
