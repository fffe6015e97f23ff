#include "job/job_record.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/system.hpp"
#include "base/utf8.hpp"
#include "job/requests.hpp"
#include "ops/products.hpp"

namespace reelmesh {
namespace {

constexpr std::array<std::string_view, 14> read_variables{
    "OMP_",  "GOMP_",  "KMP_",      "OMPI_MCA_", "UCX_",  "CUDA_", "NVIDIA_",
    "NCCL_", "CUDNN_", "REELMESH_", "ONEDNN_",   "DNNL_", "HDF5_", "XDG_CACHE_HOME="};
// What mpirun itself tells its ranks, with addresses and a key of the job.
constexpr std::array<std::string_view, 9> set_by_mpirun{"OMPI_MCA_orte_",
                                                        "OMPI_MCA_ess",
                                                        "OMPI_MCA_pmix",
                                                        "OMPI_MCA_initial_wdir",
                                                        "OMPI_MCA_shmem_RUNTIME",
                                                        "OMPI_MCA_PREFIXES",
                                                        "OMPI_MCA_mca_base_component_path",
                                                        "OMPI_MCA_num_procs",
                                                        "OMPI_MCA_cpu_type"};
constexpr std::array<std::string_view, 20> slurm_variables{"SLURM_JOB_ID=",
                                                           "SLURM_JOB_NAME=",
                                                           "SLURM_JOB_PARTITION=",
                                                           "SLURM_JOB_NODELIST=",
                                                           "SLURM_JOB_NUM_NODES=",
                                                           "SLURM_CLUSTER_NAME=",
                                                           "SLURM_JOB_QOS=",
                                                           "SLURM_JOB_ACCOUNT=",
                                                           "SLURM_JOB_START_TIME=",
                                                           "SLURM_JOB_END_TIME=",
                                                           "SLURM_RESTART_COUNT=",
                                                           "SLURM_ARRAY_JOB_ID=",
                                                           "SLURM_ARRAY_TASK_ID=",
                                                           "SLURM_STEP_ID=",
                                                           "SLURM_NTASKS=",
                                                           "SLURM_NTASKS_PER_NODE=",
                                                           "SLURM_CPUS_PER_TASK=",
                                                           "SLURM_MEM_PER_NODE=",
                                                           "SLURM_GPUS",
                                                           "SLURM_SUBMIT_HOST="};

/// The variables that begin with one of these texts, sorted.
template <std::size_t n>
std::vector<std::string> variables(const std::array<std::string_view, n>& beginnings) {
  const auto begins = [](const std::string& text, const auto& with) {
    return std::ranges::any_of(with, [&](std::string_view b) { return text.starts_with(b); });
  };
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    std::string text = *variable;
    if (begins(text, beginnings) && !begins(text, set_by_mpirun)) found.push_back(std::move(text));
  }
  std::ranges::sort(found);
  return found;
}

/// "12.4, cuBLASLt 12.4.5, NCCL not found" → "CUDA 12.4", "cuBLASLt 12.4.5"
std::vector<std::string> libraries_of_gpus() {
  std::vector<std::string> libraries;
  const std::string all = "CUDA " + cuda_versions();
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(", ", begin), all.size());
    const std::string library = all.substr(begin, end - begin);
    if (!library.ends_with(" not found")) libraries.push_back(library);
    begin = end + 2;
  }
  return libraries;
}

/// The absolute path; as given if the working folder has a name that is not UTF-8, which neither
/// JSON nor HDF5 takes.
std::string path_text(const std::filesystem::path& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  return error || !is_utf8(absolute) ? path.string() : absolute;
}

std::vector<std::string> as_utf8(const std::vector<std::string>& texts) {
  std::vector<std::string> valid;
  for (const std::string& text : texts) valid.push_back(reelmesh::as_utf8(text));
  return valid;
}

/// The request with all settings of the clip, so that it does not depend on options or defaults.
ClipRequest resolved(ClipRequest request, const Job& job, const Clip& clip) {
  request.settings = clip.record.settings;
  if (job.sample.cache && !clip.cache()) request.settings.cache = StepCache{};
  if (clip.input) {
    const InputFile& file = clip.input->file;
    (file.kind == InputKind::image ? request.image : request.video) = path_text(file.path);
    request.input_hash = clip.record.input_hash.value_or("");
    if (clip.input->last.kind != InputKind::none) {
      request.last_image = path_text(clip.input->last.path);
      request.last_image_hash = clip.record.last_image_hash.value_or("");
    }
  }
  return request;
}

}  // namespace

std::string ProgramInfo::text() const {
  return fmt::format("{} ({}{})", version, revision, changed ? ", changed" : "");
}

std::vector<RankHost> gather_hosts(const comm::Group& world, const Machine& machine,
                                   Device device) {
  const std::array<std::vector<std::string>, 5> columns{
      world.gather(machine.host, 0), world.gather(processor_name(), 0),
      world.gather(std::string(ops::vector_instructions()), 0), world.gather(name_of(device), 0),
      world.gather(device.is_cuda() ? gpu_driver_version() : "", 0)};
  std::vector<RankHost> hosts;
  for (std::size_t i = 0; i < columns[0].size(); ++i) {
    hosts.push_back({columns[0][i], columns[1][i], columns[2][i], columns[3][i], columns[4][i]});
  }
  return hosts;
}

JobRecord job_record(const Job& job, const JobPlan& planned, const ProgramInfo& program,
                     std::vector<RankHost> hosts, bool on_gpu, const std::string& weights) {
  JobRecord record;
  record.program = program.name;
  record.version = program.version;
  record.revision = program.revision;
  record.options = job.options;
  record.status = "unfinished";
  record.trace = job.trace_level > 0;
  Provenance& from = record.provenance;
  from.hosts = std::move(hosts);
  for (const RankHost& host : from.hosts) record.hosts.push_back(host.host);
  from.command = as_utf8(job.source.command);
  std::error_code unknown;
  from.working_folder = reelmesh::as_utf8(std::filesystem::current_path(unknown).string());
  from.job_file = job.source.job_file;
  for (const auto& [key, value] : job.source.given) {
    from.options_given.push_back(fmt::format("{} = {}", key, value));
  }
  from.git_revision = program.revision;
  from.git_changed = program.changed;
  from.compiler = program.compiler;
  from.compiler_flags = program.compiler_flags;
  from.build_type = program.build_type;
  from.libraries = program.libraries;
  if (on_gpu) {
    for (std::string& library : libraries_of_gpus()) from.libraries.push_back(std::move(library));
  }
  from.model_path = path_text(job.model.root);
  from.weights_hash = weights;
  if (!on_gpu) from.products = planned.products.empty() ? "float32" : planned.products;
  from.environment = as_utf8(variables(read_variables));
  from.slurm = as_utf8(variables(slurm_variables));
  return record;
}

void set_requests(std::vector<JobClip>& records, const Job& job, const JobPlan& planned) {
  const ClipDefaults defaults = planned.family->defaults();
  std::map<Shape, std::size_t> clips_of_size;
  for (const ClipOutline& outline : planned.clips) {
    ++clips_of_size[planned.kinds[outline.kind].video];
  }
  for (const ClipOutline& outline : planned.clips) {
    const auto i = static_cast<std::size_t>(outline.index);
    const ClipRequest request = job.request(i);
    const Clip clip = requested_clip(job, request, outline.index, defaults, planned.inputs);
    JobClip& record = records.at(i);
    record.request = request_line(resolved(request, job, clip));
    const Shape& video = planned.kinds[outline.kind].video;
    if (!job.keep_video || clips_of_size[video] > max_videos) continue;
    record.prompt = clip.record.prompt;
    record.seed = clip.seed();
    record.fps = clip.fps();
    record.video = video;
    record.video.push_back(3);
  }
}

void require_same_weights(const Job& job, const std::string& weights) {
  const std::string& expected = job.source.weights_hash;
  require(expected.empty() || weights == expected, Status::data,
          "{}: the model has the hash {}, but that of the job of {} had {}; give --model.path to "
          "run it with this model anyway",
          job.model.root.string(), weights, job.source.from.string(), expected);
}

}  // namespace reelmesh
