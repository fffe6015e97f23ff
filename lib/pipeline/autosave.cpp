#include "pipeline/autosave.hpp"

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/failures.hpp"
#include "tensor/device.hpp"

namespace reelmesh::pipeline {
namespace {

// Steps longer than this are interruptible between layers, which costs a small message a layer.
constexpr double long_step_seconds = 2;
// A clip that is ready for decoding is saved if repeating its last steps would take this long.
constexpr double worth_saving_seconds = 10;

double now() { return 1e-9 * static_cast<double>(trace::now_ns()); }

Shape embeddings_shape(const Clip& clip, std::int64_t channels) {
  return {clip.tokens(), std::ssize(clip.texts), channels};
}

bool has_image(const Clip& clip) { return clip.format.input == InputKind::image; }

RestartShapes restart_shapes(const Clip& clip, std::int64_t channels) {
  return {clip.latent_shape(),
          embeddings_shape(clip, channels),
          has_image(clip) ? clip.input_shape() : Shape(),
          clip.vision,
          clip.format.keeps_residual ? clip.hidden : Shape(),
          clip.sampling.decides ? clip.latent_shape() : Shape()};
}

// What a state depends on besides the attributes of its clip.
std::string inputs_text(const Clip& clip) {
  std::string text = fmt::format("video {}, texts", to_string(clip.video));
  for (const auto& ids : clip.texts) text += fmt::format(" [{}]", fmt::join(ids, " "));
  return text;
}

std::optional<RestartFile> find_restart(const std::filesystem::path& output, const Clip& clip,
                                        std::int64_t channels) {
  auto file =
      RestartFile::open(output, clip.record, inputs_text(clip), restart_shapes(clip, channels));
  if (!file || file->record().step > clip.sampling.sampler->calls()) return std::nullopt;
  try {
    TorchGenerator::restored(file->record().generator);
  } catch (const Error&) {
    return std::nullopt;
  }
  return file;
}

}  // namespace

FoundState find_state(const Job& job, const Clip& clip, std::int64_t text_channels) {
  const std::filesystem::path folder = restart_folder(job, clip.index());
  std::error_code unreadable;
  if (!std::filesystem::exists(restart_path(folder, clip.index()), unreadable)) return {};
  if (const auto file = find_restart(folder, clip, text_channels)) return {file->record().step, {}};
  return {0, RestartFile::has_other_version(folder, clip.index())
                 ? fmt::format("not of version {} of restart files", restart_version)
                 : "damaged, or not of this clip and model"};
}

RestartFile open_restart(const Job& job, const Clip& clip, std::int64_t text_channels) {
  const std::filesystem::path folder = restart_folder(job, clip.index());
  auto file = find_restart(folder, clip, text_channels);
  require(file && file->record().step == clip.saved_step, Status::io,
          "{}: found other content than at the start of the job",
          restart_path(folder, clip.index()).string());
  return std::move(*file);
}

SavedState saved_state(const RestartFile& file) {
  const RestartRecord& record = file.record();
  return {record.step, record.generator, record.history, record.cache_sum,
          [&file](const std::string& name, const Box& box) { return file.read(name, box); }};
}

Autosave::Autosave(const std::filesystem::path& output, const RestartSettings& settings,
                   const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
                   std::span<const Conditioning> conditioning, std::int64_t text_channels)
    : output_(output),
      settings_(settings),
      group_(group),
      layout_(layout),
      batch_(batch),
      conditioning_(conditioning),
      text_channels_(text_channels),
      failed_on_(batch.size(), -1),
      saved_(batch.size()),
      saved_step_(batch.front().saved_step),
      saved_at_(now()),
      step_began_(saved_at_) {}

bool Autosave::agree_after_step(const Denoising& denoising, bool enough) {
  // GPUs must have completed the step whose duration is measured here. A failure of a GPU or of
  // NCCL is thrown here: in the reduction, this rank would wait for ranks that wait for it.
  synchronize(denoising.states().front().latents.device());
  const std::int64_t step = denoising.states().front().step;
  if (!unsaved_) unsaved_.emplace();
  const double time = now(), since_save = time - saved_at_;
  bool due = settings_.is_due(step, since_save);
  if (denoising.finished()) {
    due =
        due || batch_.front().is_left() || (settings_.any() && since_save >= worth_saving_seconds);
  }
  const bool is_long = time - step_began_ > long_step_seconds;
  std::vector<std::int64_t> votes{enough || stop::leaving() ? 1 : 0, due ? 1 : 0, is_long ? 1 : 0};
  for (const DenoiseState& state : denoising.states()) {
    votes.push_back(vote_if(!ops::all_finite(state.latents), group_));
  }
  group_.max(votes);
  steps_are_long_ = votes[2] > 0;
  for (std::size_t i = 0; i < failed_on_.size(); ++i) {
    if (failed_on_[i] < 0) failed_on_[i] = found_on(votes[3 + i], group_);
  }
  if (votes[0] > 0 || votes[1] > 0) save_together(denoising);
  step_began_ = now();
  return votes[0] > 0;
}

void Autosave::save_together(const Denoising& denoising) {
  const std::int64_t step = denoising.states().front().step;
  if (step == saved_step_) return;
  if (!unsaved_) unsaved_.emplace();
  const trace::Scope scope(trace::spans::save);
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    if (failed_on_[i] >= 0) continue;
    const Clip& clip = batch_[i];
    const trace::Mark mark(&trace::Recorder::clip, clip.index());
    const DenoiseState& state = denoising.states()[i];
    std::vector<RestartArray> arrays = denoising.state_arrays(i);
    const Shape shape = embeddings_shape(clip, text_channels_);
    const Layout texts = layout_.conditioning(shape[0], shape[1], shape[2]).without_copies();
    const Box& own = own_box(texts, group_);
    arrays.push_back({"embeddings",
                      {own.empty() ? Tensor::empty(own.extent, DType::float32)
                                   : conditioning_[i].text.on({}).to(DType::float32),
                       texts, group_}});
    if (has_image(clip)) {
      const Layout kept = over_first_ranks(layout_.latents.cropped(0, 0, clip.input->latent_frames)
                                               .with_axis(1, clip.latent_channels),
                                           group_.size());
      const std::int64_t frames = own_box(kept, group_).extent[0];
      arrays.push_back(
          {"image_latents", {conditioning_[i].image.on({}).rows(0, frames), kept, group_}});
    }
    if (!clip.vision.empty()) {
      arrays.push_back({"image_rows",
                        {conditioning_[i].vision.to(DType::float32),
                         Layout::replicated(clip.vision, group_.size()), group_}});
    }
    write_restart(group_, output_,
                  {clip.record, inputs_text(clip), step, state.generator.saved(),
                   std::ssize(state.history), state.cache_sum},
                  arrays);
    saved_[i] = true;
  }
  saved_step_ = step;
  saved_at_ = now();
  unsaved_.reset();
}

}  // namespace reelmesh::pipeline
