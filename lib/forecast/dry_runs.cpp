#include "forecast/dry_runs.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "job/denoise.hpp"
#include "models/t5/t5.hpp"
#include "ops/rows.hpp"
#include "plan/denoise.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {

// A part of a model with its ledger.
template <class Model>
struct DryRuns::Part {
  Ledger ledger;
  std::unique_ptr<Model> model;
  std::int64_t weights = 0, loading = 0;  // bytes; loading: beside the weights, at the peak
  std::int64_t host = 0;                  // on the host of a GPU, at the peak

  template <class Make>
  Part(const Precision& precision, std::shared_ptr<const TimeModel> times, const Make& make)
      : ledger(precision, std::move(times)) {
    const DryRun run(ledger);
    const PurposeScope purpose(Purpose::weights);
    model = make();
    const std::int64_t peak = ledger.peak();
    host = ledger.host_peak();
    ledger.release();
    weights = ledger.present();
    loading = peak - weights;
  }
};

// What a training has in memory of a model.
struct DryRuns::TrainedParts {
  std::unique_ptr<Trainable> transformer;
  std::unique_ptr<const Encoder> encoder;  // only if the transformer takes an image
};

// Clips of one size that are denoised together, and what was found for them.
struct DryRuns::Batch {
  std::vector<Clip> clips;
  std::int64_t text_tokens = 1;
  std::int64_t history = 0;  // tensors that the sampler keeps
  DenoiseLayout alone;       // on one rank
  std::optional<WholeStep> whole;
  std::map<std::vector<std::int64_t>, DenoiseCost> costs;           // by DryRuns::share()
  std::map<std::vector<std::int64_t>, StageCost> decoded, encoded;  // by extents and edges
  std::int64_t reading = 0;  // bytes of the host for an input
};

// A step of one batch, or of a training with one clip, on one rank. Bytes, FLOPs.
struct DryRuns::Step {
  std::int64_t weights = 0, loading = 0;
  std::int64_t held = 0;    // while the clip is denoised, beside the weights
  std::int64_t excess = 0;  // at the peak of a step
  std::int64_t host = 0;    // as StageMemory::host
  std::int64_t per_thread = 0, sent = 0, flops = 0, attention = 0;
  std::int64_t fetched = 0;  // of weights
  std::int64_t peers = 0;    // ranks with which device tensors are exchanged
  // Beside `flops` and `sent`, once a step, for how many clips it may be.
  std::int64_t flops_update = 0, sent_update = 0;
  Elapsed time, time_update;
  double attention_seconds = 0;

  // A clip's step on average, from one of each kind and how many there are; of memory the most.
  using Counted = std::pair<Step, std::int64_t>;
  static Step mean(std::span<const Counted> kinds) {
    std::int64_t all = 0;
    for (const auto& [kind, count] : kinds) all += count;
    Step step = kinds.front().first;
    for (std::int64_t Step::*amount :
         {&Step::held, &Step::excess, &Step::host, &Step::per_thread, &Step::peers}) {
      for (const auto& [kind, count] : kinds) step.*amount = std::max(step.*amount, kind.*amount);
    }
    for (std::int64_t Step::*amount :
         {&Step::sent, &Step::flops, &Step::attention, &Step::fetched}) {
      std::int64_t sum = 0;
      for (const auto& [kind, count] : kinds) sum += count * (kind.*amount);
      step.*amount = sum / all;
    }
    step.time = {};
    step.attention_seconds = 0;
    for (const auto& [kind, count] : kinds) {
      const double share = static_cast<double>(count) / static_cast<double>(all);
      step.time = step.time + share * kind.time;
      step.attention_seconds += share * kind.attention_seconds;
    }
    return step;
  }

  // If each layer beyond `one` adds what the second adds.
  static Step of_layers(const Step& one, const Step& two, std::int64_t layers) {
    Step step = two;
    for (std::int64_t Step::*amount : {&Step::weights, &Step::held, &Step::sent, &Step::flops,
                                       &Step::attention, &Step::fetched}) {
      step.*amount = one.*amount + (layers - 1) * (two.*amount - one.*amount);
    }
    const auto more = static_cast<double>(layers - 1);
    step.time = one.time + more * (two.time - one.time);
    step.attention_seconds =
        one.attention_seconds + more * (two.attention_seconds - one.attention_seconds);
    return step;
  }
};

namespace {

// The images of a rank of the decoding group: their extents, and at which edges they are.
struct Place {
  std::vector<std::int64_t> extents, edges;
  Place(const DecodeLayout& layout, int rank) {
    for (const Layout* one : {&layout.latents, &layout.frames, &layout.images}) {
      const Box& box = one->box(rank);
      for (std::size_t axis = 0; axis < box.extent.size(); ++axis) {
        extents.push_back(box.extent[axis]);
        edges.push_back(box.offset[axis] == 0);
        edges.push_back(box.end(axis) == one->global()[axis]);
      }
    }
  }
  auto at_edges() const { return std::ranges::count(edges, 1); }
};

constexpr int small_group = 64;
bool is_small(const DecodeLayout& layout) { return layout.latents.ranks() <= small_group; }

// Ranks with equal numbers take the same.
std::vector<std::int64_t> place_key(const DecodeLayout& layout, int rank) {
  const Place place(layout, rank);
  std::vector<std::int64_t> key = place.extents;
  if (is_small(layout)) key.insert(key.end(), place.edges.begin(), place.edges.end());
  return key;
}

// In a large group: a rank with images of the same extents that is at the fewest edges, and so has
// the largest halo.
int inner_rank(const DecodeLayout& layout, int rank) {
  if (is_small(layout)) return rank;
  const Place mine(layout, rank);
  auto fewest = mine.at_edges();
  for (int other = 0; other < layout.latents.ranks(); ++other) {
    const Place place(layout, other);
    if (place.extents != mine.extents || place.at_edges() >= fewest) continue;
    fewest = place.at_edges();
    rank = other;
  }
  return rank;
}

}  // namespace

DryRuns::DryRuns(const Family& family, const Precision& precision, const Numerics& numerics,
                 bool unlike_processors, StageTimes times, std::optional<DryTraining> training,
                 const BesideParts& beside)
    : family_(family),
      precision_(precision),
      numerics_(numerics),
      unlike_processors_(unlike_processors),
      times_(std::move(times)),
      training_(std::move(training)),
      beside_(beside) {}

DryRuns::~DryRuns() = default;

std::shared_ptr<DryRuns> DryRuns::of(const Family& family, const Precision& precision,
                                     const Numerics& numerics, bool unlike_processors,
                                     StageTimes times, std::optional<DryTraining> training,
                                     const BesideParts& beside) {
  return std::shared_ptr<DryRuns>(new DryRuns(family, precision, numerics, unlike_processors,
                                              std::move(times), std::move(training), beside));
}

Checkpoint DryRuns::shapes() const {
  return Checkpoint::of_shapes().on(precision_.device(), numerics_);
}

// Of a part whose layers may be streamed: how it is stored matters.
Checkpoint DryRuns::shapes(ModelPart part) const {
  const auto [entry, is_new] = stored_.try_emplace(part, Checkpoint::of_shapes());
  const ModelPaths& paths = family_.paths();
  if (is_new && paths.has(part) && paths.has_weights(part)) {
    entry->second = family_.open(part).without_values();
  }
  return entry->second.on(precision_.device(), numerics_);
}

// The pool of a GPU's memory keeps blocks that fit no other use: a tenth is allowed for them.
StageMemory DryRuns::of_stage(std::int64_t weights, std::int64_t loading, std::int64_t running,
                              std::int64_t per_thread, std::int64_t host) const {
  if (precision_.on_gpu) running += running / 10;
  return {weights, std::max(loading, running), precision_.on_gpu ? 0 : per_thread, host};
}

// Counts what a stage has on the host at its peak whatever the ranks compute on; per_thread: of
// each thread from then on.
void DryRuns::add_on_host(StageMemory& memory, std::int64_t bytes, std::int64_t per_thread) const {
  std::int64_t& peak = precision_.on_gpu ? memory.host : memory.working;
  peak = std::max(peak, bytes);
  if (!precision_.on_gpu) memory.per_thread += per_thread;
}

DryRuns::Transformer& DryRuns::transformer(std::int64_t layers, Residence residence, bool in_turn) {
  std::unique_ptr<Transformer>& made = transformers_[{layers, residence, in_turn}];
  if (made == nullptr) {
    WeightPlacement placement{.residence = residence,
                              .unlike_processors = unlike_processors_,
                              .experts_in_turn = in_turn};
    // Shares of two ranks: there is no window on one rank, and it is the same on more.
    if (residence != Residence::replicated) placement.group = comm::Group::pretended(0, 2);
    made = make_transformer(layers, placement);
  }
  return *made;
}

std::unique_ptr<DryRuns::Transformer> DryRuns::make_transformer(
    std::int64_t layers, const WeightPlacement& placement) const {
  return std::make_unique<Transformer>(precision_, times_.others, [&] {
    auto made = family_.denoiser([this](ModelPart part) { return shapes(part); },
                                 precision_.tensors, placement, layers);
    made->use_together(0);
    return made;
  });
}

namespace {

// Attention so far.
Ledger::Total attention(const Ledger& ledger) {
  Ledger::Total sum;
  for (const auto& span : {trace::spans::attention, trace::spans::attention_backward}) {
    const auto found = ledger.operations().find(span.name);
    if (found == ledger.operations().end()) continue;
    sum.flops += found->second.flops;
    sum.seconds += found->second.seconds;
  }
  return sum;
}

}  // namespace

// One step of each expert, of those that are computed: the second, with what the first leaves; of a
// batch that decides which steps are computed, the last, which always is.
DryRuns::Step DryRuns::step(Transformer& part, const Batch& batch, const DenoiseLayout& layout,
                            int rank) {
  const Clip& clip = batch.clips.front();
  const SamplingRecipe& sampling = clip.sampling;
  const int last = sampling.sampler->calls() - 1;
  std::map<int, std::vector<std::int64_t>> steps;
  for (int i = 0; i < clip.end_step(); ++i) {
    if (!sampling.computes(i)) continue;
    steps[part.model->expert(sampling.sampler->timestep(i))].push_back(i);
  }
  std::vector<Step::Counted> kinds;
  for (const auto& [expert, numbers] : steps) {
    const std::int64_t number =
        sampling.decides ? last : numbers[std::min<std::size_t>(1, numbers.size() - 1)];
    kinds.emplace_back(step(part, batch, layout, rank, number), std::ssize(numbers));
  }
  return Step::mean(kinds);
}

DryRuns::Step DryRuns::step(Transformer& part, const Batch& batch, const DenoiseLayout& layout,
                            int rank, std::int64_t number) {
  Ledger& ledger = part.ledger;
  const DryRun run(ledger);
  ledger.release();
  const trace::Recorder& counted = ledger.counted();
  Step step{.weights = part.weights, .loading = part.loading};
  const Clip& clip = batch.clips.front();
  const Device device = precision_.device();
  const Layout latents = layout.latents.with_axis(1, clip.latent_channels);
  const Shape box = latents.box(layout.branch_rank(rank)).extent;
  const Shape text =
      layout.conditioning(batch.text_tokens, std::ssize(clip.texts), family_.text_encoder().d_model)
          .box(rank)
          .extent;
  const bool has_image = clip.input && clip.input->file.kind == InputKind::image;
  std::vector<Conditioning> conditioning;
  for (std::size_t i = 0; i < batch.clips.size(); ++i) {
    conditioning.push_back({.text = Tensor::empty(text, precision_.tensors, device.host()),
                            .image = {},
                            .vision = {}});
    if (has_image) conditioning.back().image = Tensor::empty(box, DType::float32, device.host());
    if (!clip.vision.empty()) {
      conditioning.back().vision = Tensor::empty(clip.vision, precision_.tensors, device.host());
    }
  }
  const SavedState before{.step = number,
                          .generator = TorchGenerator(0).saved(),
                          .history = batch.history,
                          .read = [&](const std::string&, const Box& of) {
                            return Tensor::empty(of.extent, DType::float32, device.host());
                          }};
  Denoising denoising(comm::Group::pretended(rank, layout.mesh.ranks()), layout, batch.clips,
                      conditioning, *part.model,
                      std::vector<SavedState>(batch.clips.size(), before));
  const std::int64_t present = ledger.present();
  const std::int64_t flops = counted.flops, sent = counted.bytes_sent;
  const std::int64_t fetched = counted.bytes_fetched;
  const Ledger::Total in_attention = attention(ledger);
  const Elapsed begin = ledger.elapsed();
  denoising.step_together();
  step.held = ledger.present() - part.weights;
  step.excess = ledger.peak() - present;
  step.host = std::max(part.host, ledger.host_peak());
  step.flops = counted.flops - flops;
  step.attention = attention(ledger).flops - in_attention.flops;
  step.attention_seconds = attention(ledger).seconds - in_attention.seconds;
  step.sent = counted.bytes_sent - sent;
  step.fetched = counted.bytes_fetched - fetched;
  step.time = ledger.elapsed() - begin;
  step.per_thread = ledger.scratch();
  step.peers = ledger.peers();
  return step;
}

// How many tensors the sampler passes from one step to the next.
std::int64_t DryRuns::history_of(const Clip& clip, std::int64_t predicted_channels) const {
  Ledger ledger(precision_, nullptr);
  const DryRun run(ledger);
  const Device device = precision_.device();
  Tensor latents = Tensor::empty({1, clip.latent_channels, 1, 1}, DType::float32, device);
  const Tensor prediction = Tensor::empty({1, predicted_channels, 1, 1}, DType::float32, device);
  std::vector<Tensor> history;
  clip.sampling.sampler->step(0, prediction, latents, history, {});
  return std::ssize(history);
}

DryRuns::Trained& DryRuns::trained(Residence residence) {
  std::unique_ptr<Trained>& made = trained_[residence];
  if (made == nullptr) {
    WeightPlacement placement{.residence = residence, .unlike_processors = unlike_processors_};
    if (residence != Residence::replicated) placement.group = comm::Group::pretended(0, 2);
    made = make_trained(placement);
  }
  return *made;
}

std::unique_ptr<DryRuns::Trained> DryRuns::make_trained(const WeightPlacement& placement) const {
  return std::make_unique<Trained>(precision_, times_.others, [&] {
    auto parts = std::make_unique<TrainedParts>();
    parts->transformer = family_.trainable(shapes(ModelPart::transformer), precision_.tensors,
                                           placement, training_mode(training_->settings));
    if (family_.image_scale()) parts->encoder = family_.encoder(shapes(), precision_.tensors);
    return parts;
  });
}

// One round and the update, as in a step of a training.
DryRuns::Step DryRuns::training_step(Trained& part, const Batch& batch, const DenoiseLayout& layout,
                                     int rank, const Replica& replica) {
  Ledger& ledger = part.ledger;
  const DryRun run(ledger);
  ledger.release();
  const trace::Recorder& counted = ledger.counted();
  Step step{.weights = part.weights, .loading = part.loading};
  const Clip& clip = batch.clips.front();
  const TrainSettings& settings = training_->settings;
  const Device host = precision_.device().host();
  const DenoiseTask task{.group = comm::Group::pretended(rank, layout.mesh.ranks()),
                         .layout = layout,
                         .latents = clip.latents,
                         .branches = 1,
                         .size = clip.format.size,
                         .fps = clip.fps(),
                         .image_rows = clip.image_rows()};
  const comm::Group peers = comm::Group::pretended(replica.index, replica.count);
  const Encoder* encoder = part.model->encoder.get();
  const auto own =
      training_->make(*part.model->transformer, task, peers, settings, {.encoder = encoder});
  column_unit_ = own->columns().unit();
  own->use_values();
  step.held = ledger.present() - part.weights;
  const std::int64_t clips = std::min<std::int64_t>(replica.count, settings.batch);
  const std::int64_t flops = counted.flops, sent = counted.bytes_sent;
  const std::int64_t fetched = counted.bytes_fetched;
  const Ledger::Total in_attention = attention(ledger);
  const Elapsed before = ledger.elapsed();
  {
    Tensor gradient;
    if (replica.index < clips) {
      const Shape box = layout.latents.with_axis(1, clip.latent_channels).box(rank).extent;
      const Shape text{layout.text.box(rank).numel(), 1, family_.text_encoder().d_model};
      TrainingSample sample{.timestep = 0,
                            .latents = Tensor::empty(box, DType::float32, host),
                            .target = Tensor::empty(box, DType::float32, host),
                            .text = Tensor::empty(text, precision_.tensors, host)};
      if (family_.encodes_image_once()) sample.image = Tensor::empty(box, DType::float32, host);
      if (!clip.vision.empty()) {
        sample.vision = Tensor::empty(clip.vision, precision_.tensors, host);
      }
      if (encoder != nullptr) {
        const Shape& pixels = own->image_pixels().box(rank).extent;
        sample.image = own->encode_image(Tensor::empty(pixels, DType::float32, host), {});
      }
      gradient = own->compute(sample).gradient;
    }
    own->add(gradient, clips);
  }
  step.flops = counted.flops - flops;
  step.attention = attention(ledger).flops - in_attention.flops;
  step.attention_seconds = attention(ledger).seconds - in_attention.seconds;
  step.sent = counted.bytes_sent - sent;
  step.fetched = counted.bytes_fetched - fetched;
  step.time = ledger.elapsed() - before;
  own->update(0, 1, settings.batch);
  step.flops_update = counted.flops - flops - step.flops;  // parts that a model computes once
  step.sent_update = counted.bytes_sent - sent - step.sent;
  step.time_update = ledger.elapsed() - before - step.time;
  convolutions_.insert(ledger.convolutions().begin(), ledger.convolutions().end());
  step.excess = ledger.peak() - part.weights - step.held;
  step.host = std::max(part.host, ledger.host_peak());
  step.per_thread = ledger.scratch();
  step.peers = ledger.peers();
  return step;
}

DryRuns::Step DryRuns::step(const Batch& batch, const DenoiseLayout& layout, int rank,
                            Residence residence, const Replica& replica, bool in_turn) {
  if (training_) return training_step(trained(residence), batch, layout, rank, replica);
  const std::int64_t layers = family_.layers();
  const Step one = step(transformer(1, residence, in_turn), batch, layout, rank);
  if (layers == 1) return one;
  return Step::of_layers(one, step(transformer(2, residence, in_turn), batch, layout, rank),
                         layers);
}

// Ranks with equal numbers take the same.
std::vector<std::int64_t> DryRuns::share(const DenoiseLayout& layout, int rank,
                                         const Replica& replica) {
  std::vector<std::int64_t> share = family_.share(layout, rank);
  const Mesh& mesh = layout.mesh;
  share.insert(share.end(), {mesh.cfg, mesh.ring, mesh.ulysses});
  if (times_.others) {  // nanoseconds of a message to each rank of its row, and of its column
    const int column = rank % mesh.ulysses, first_of_row = rank - column;
    const int first_of_column = rank - rank % mesh.branch_ranks() + column;
    const auto time = [&](int first, int distance, int count) {
      std::vector<Transfer> transfers;
      for (int i = 0; i < count; ++i) transfers.push_back({first + i * distance, 1 << 20});
      const double seconds = times_.others->exchange(rank, transfers);
      return ends(seconds) ? std::llround(1e9 * seconds) : -1;
    };
    share.insert(share.end(), {time(first_of_row, 1, mesh.ulysses),
                               time(first_of_column, mesh.ulysses, mesh.ring)});
  }
  if (!training_) return share;
  const std::int64_t batch = training_->settings.batch;
  share.insert(share.end(), {replica.count, replica.share_of(batch), replica.index < batch});
  const TokenColumns columns(comm::Group::pretended(rank, mesh.ranks()), {}, column_unit_);
  std::set<std::int64_t> widths;
  std::vector<Box> parts;
  for (const TrainedMatrix& matrix :
       trained(Residence::replicated).model->transformer->matrices()) {
    widths.insert(matrix.divided());
    parts.push_back(matrix.box(columns, rank));
  }
  for (const std::int64_t width : widths) share.push_back(columns.own_columns(width).count);
  const std::vector<std::int64_t> borders = replica_borders(parts, replica.count);
  const auto own = static_cast<std::size_t>(replica.index);
  share.push_back(borders[own + 1] - borders[own]);
  if (!family_.image_scale()) return share;
  const Shape& latents = layout.latents.global();
  const auto [entry, is_new] = images_.try_emplace({latents, mesh.ranks()});
  Layout& image = entry->second;
  if (is_new) image = image_latents(latents, mesh.ranks());
  const Place place({image, image, image}, rank);
  share.insert(share.end(), place.extents.begin(), place.extents.end());
  share.insert(share.end(), place.edges.begin(), place.edges.end());
  const Box first_frame = intersect(layout.latents.box(rank), whole_box(image.global()));
  share.insert(share.end(), {first_frame.numel(), intersect(image.box(rank), first_frame).numel()});
  return share;
}

DenoiseCost DryRuns::denoise(std::size_t size, const DenoiseLayout& layout, int rank,
                             const Replica& replica) {
  Batch& batch = *batches_.at(size);
  const auto [entry, is_new] = batch.costs.try_emplace(share(layout, rank, replica));
  DenoiseCost& cost = entry->second;
  if (is_new) {
    const Step found = step(batch, layout, rank, Residence::replicated, replica);
    const std::int64_t times = training_ ? replica.share_of(training_->settings.batch) : 1;
    const auto memory = [&](const Step& of) {
      StageMemory stage =
          of_stage(of.weights, of.loading, of.held + of.excess, of.per_thread, of.host);
      add_on_host(stage, beside_.loras.shared, beside_.loras.per_thread);
      stage.peers = of.peers;
      return stage;
    };
    cost.memory = memory(found);
    if (family_.experts() > 1) {
      cost.in_turn = memory(step(batch, layout, rank, Residence::replicated, replica, true));
    }
    cost.step = {.flops = static_cast<double>(times * found.flops + found.flops_update),
                 .sent_bytes = times * found.sent + found.sent_update,
                 .time = static_cast<double>(times) * found.time + found.time_update};
  }
  return cost;
}

WholeStep DryRuns::whole_step(std::size_t size) {
  Batch& batch = *batches_.at(size);
  if (!batch.whole) {
    const Step alone = step(batch, batch.alone, 0, Residence::replicated);
    batch.whole = {static_cast<double>(alone.attention),
                   static_cast<double>(alone.flops - alone.attention), alone.attention_seconds,
                   alone.time.total() - alone.attention_seconds};
  }
  return *batch.whole;
}

// Of all layers, sharded by one rank alone.
std::int64_t DryRuns::sharded_by_one() const {
  const WeightPlacement placement{.residence = Residence::sharded,
                                  .group = comm::Group::pretended(0, 1)};
  if (training_) return make_trained(placement)->weights;
  const auto weights = [&](std::int64_t layers) {
    return make_transformer(layers, placement)->weights;
  };
  const std::int64_t one = weights(1);
  return one + (family_.layers() - 1) * (weights(2) - one);
}

const StreamedWeights& DryRuns::streamed(const Batch& batch) {
  if (streamed_) return *streamed_;
  const auto step = [&](Residence residence) {
    return this->step(batch, batch.alone, 0, residence);
  };
  const Step whole = step(Residence::replicated), fetched = step(Residence::host);
  const auto window = [&](const Step& other) {
    return std::max<std::int64_t>(0, other.held + other.excess - whole.held - whole.excess);
  };
  StreamedWeights& streamed = streamed_.emplace();
  streamed.bytes = whole.weights - fetched.weights;
  streamed.sharded_bytes = sharded_by_one() - fetched.weights;
  streamed.host_bytes = precision_.on_gpu ? streamed.sharded_bytes : streamed.bytes;
  streamed.gather_window = window(step(Residence::sharded));
  streamed.host_window = window(fetched);
  streamed.step = fetched.fetched;
  return streamed;
}

// The shares of ranks depend on the sizes of all layers, so all layers are run, on one rank's clip,
// which sends nothing else. In larger groups, equal shares are assumed.
std::int64_t DryRuns::sent_weights(const RankWeights& shares, int rank, int ranks) {
  constexpr int max_ranks = 64;
  if (ranks > max_ranks) return streamed(*batches_.front()).sharded_bytes / ranks * (ranks - 1);
  const auto [entry, is_new] = sent_weights_.try_emplace({shares, rank, ranks});
  if (is_new) {
    const Batch& first = *batches_.front();
    const WeightPlacement placement{.residence = Residence::sharded,
                                    .group = comm::Group::pretended(rank, ranks),
                                    .shares = shares,
                                    .unlike_processors = unlike_processors_};
    entry->second =
        training_
            ? training_step(*make_trained(placement), first, first.alone, 0, {}).sent
            : step(*make_transformer(family_.layers(), placement), first, first.alone, 0).sent;
  }
  return entry->second;
}

// A part is loaded anew for each run, since what a run leaves may change the holes of the next.
template <class Model, class Make, class Use>
StageCost DryRuns::run_part(const std::shared_ptr<const TimeModel>& times, const Make& make,
                            const Use& use) const {
  Part<const Model> part(precision_, times, make);
  Ledger& ledger = part.ledger;
  const DryRun run(ledger);
  ledger.release();
  const Elapsed before = ledger.elapsed();
  use(*part.model);
  convolutions_.insert(ledger.convolutions().begin(), ledger.convolutions().end());
  StageMemory memory = of_stage(part.weights, part.loading, ledger.peak() - part.weights,
                                ledger.scratch(), std::max(part.host, ledger.host_peak()));
  memory.peers = ledger.peers();
  return {memory, ledger.elapsed() - before};
}

StageCost DryRuns::run_decoder(const Batch& batch, const DecodeLayout& layout, int rank) const {
  const auto make = [&] { return family_.decoder(shapes(), precision_.tensors); };
  return run_part<Decoder>(times_.others, make, [&](const Decoder& decoder) {
    const Layout cut = layout.latents.with_axis(1, batch.clips.front().latent_channels);
    const Tensor latents =
        Tensor::empty(cut.box(rank).extent, DType::float32, precision_.device().host());
    decoder.pixels({latents, cut, comm::Group::pretended(rank, cut.ranks())}, layout);
  });
}

// embeds: whether the rank also has the vision encoder.
StageCost DryRuns::run_encoder(const Batch& batch, const DecodeLayout& layout, int rank,
                               bool embeds) const {
  struct Encoders {
    std::unique_ptr<const Encoder> latents;
    std::unique_ptr<const VisionEncoder> vision;
  };
  const auto make = [&] {
    auto made = std::make_unique<Encoders>();
    made->latents = family_.encoder(shapes(), precision_.tensors);
    if (embeds) made->vision = family_.vision_encoder(shapes(), precision_.tensors);
    return made;
  };
  return run_part<Encoders>(times_.others, make, [&](const Encoders& encoders) {
    const Encoder& encoder = *encoders.latents;
    const Clip& clip = batch.clips.front();
    const std::int64_t frames = training_ ? clip.format.size.frames : clip.input->encoded_frames;
    const Layout cut =
        training_ ? layout.latents : layout.latents.cropped(0, 0, clip.input->latent_frames);
    const Layout pixels = encoded_pixels(clip, encoder.frames_of(cut, frames));
    const comm::Group group = comm::Group::pretended(rank, cut.ranks());
    const Device host = precision_.device().host();
    const auto read = [&](DType type) {
      return Sharded{Tensor::empty(pixels.box(rank).extent, type, host), pixels, group};
    };
    if (training_) {
      const Encoder::Posterior kept = encoder.posterior(read(DType::uint8), cut);
      if (family_.encodes_image_once()) encoder.sample(read(DType::float32), cut, 1, {});
    } else {
      encoder.sample(read(clip.input->pixel_type()), cut, clip.input->scale, {});
    }
    if (!embeds) return;
    const Tensor image = Tensor::empty(family_.vision_pixels()->shape(), DType::float32, host);
    std::vector<Tensor> rows{encoders.vision->embed(image)};
    if (clip.input && clip.input->ends_with_image()) rows.push_back(encoders.vision->embed(image));
    ops::join_rows(rows);
  });
}

StageCost DryRuns::decode(std::size_t size, const DecodeLayout& layout, int rank) {
  if (!beside_.decodes) return {};
  Batch& batch = *batches_.at(size);
  const auto [entry, is_new] = batch.decoded.try_emplace(place_key(layout, rank));
  if (is_new) entry->second = run_decoder(batch, layout, inner_rank(layout, rank));
  return entry->second;
}

StageCost DryRuns::encode(std::size_t size, const DecodeLayout& layout, int rank) {
  Batch& batch = *batches_.at(size);
  // As InputStage: the first rank has the vision encoder.
  const bool embeds =
      rank == 0 && family_.vision_pixels() && (!training_ || family_.encodes_image_once());
  std::vector<std::int64_t> key = place_key(layout, rank);
  key.push_back(embeds);
  const auto [entry, is_new] = batch.encoded.try_emplace(key);
  StageCost& cost = entry->second;
  if (is_new) {
    cost = run_encoder(batch, layout, inner_rank(layout, rank), embeds);
    add_on_host(cost.memory, batch.reading, 0);
  }
  return cost;
}

std::vector<ConvolutionShape> DryRuns::convolutions() const {
  return {convolutions_.begin(), convolutions_.end()};
}

double DryRuns::message_seconds(int ranks, std::int64_t messages, std::int64_t bytes) {
  const Transfer farthest{ranks - 1, bytes / messages};
  return static_cast<double>(messages) * times_.others->exchange(0, {&farthest, 1});
}

void DryRuns::complete(ClipWorkload& workload, const Clip& clip, std::int64_t together,
                       std::int64_t reading) {
  DenoiseWorkload& w = workload.denoise;
  w.clips = together;
  w.layers = family_.layers();
  w.element_bytes = precision_.size();
  auto batch = std::make_unique<Batch>();
  batch->clips.assign(static_cast<std::size_t>(together), clip);
  if (!training_) batch->history = history_of(clip, w.predicted_channels);
  batch->text_tokens = w.text_tokens;
  batch->alone = possible_layouts(w, {}).front().layout;
  batch->reading = reading;
  w.streamed = streamed(*batch);
  w.size = batches_.size();
  batches_.push_back(std::move(batch));
  w.costs = shared_from_this();
  workload.encodes = clip.input || training_;
}

// A part of the text encoder on a rank.
StageCost DryRuns::run_text(const T5Part& part, Residence residence) const {
  const T5Config& config = family_.text_encoder();
  const WeightPlacement placement{.residence = residence, .group = comm::Group::pretended(0, 1)};
  const auto make = [&] {
    return std::make_unique<const T5Layers>(shapes(ModelPart::text_encoder), config, part,
                                            precision_.tensors, placement);
  };
  return run_part<T5Layers>(times_.text, make, [&](const T5Layers& layers) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(text_tokens_));
    const Tensor embedded = part.embedding
                                ? layers.embed(ids)
                                : Tensor::empty({text_tokens_, 1, config.d_model},
                                                t5_stream(precision_.tensors), precision_.device());
    layers(embedded);
  });
}

TextWorkload DryRuns::text_workload(std::int64_t tokens) {
  text_tokens_ = tokens;
  const auto layers = [&](std::int64_t count, Residence residence) {
    return run_text({0, count, false, false}, residence).memory;
  };
  const StageMemory one = layers(1, Residence::replicated), two = layers(2, Residence::replicated);
  const StageMemory one_on_host = layers(1, Residence::host),
                    two_on_host = layers(2, Residence::host);
  TextWorkload workload;
  workload.layers = family_.text_encoder().num_layers;
  workload.layer_bytes = two.weights - one.weights;
  const std::int64_t stays = two_on_host.weights - one_on_host.weights;
  workload.streamed_layer.bytes = workload.layer_bytes - stays;
  workload.streamed_layer.host_bytes =
      precision_.on_gpu
          ? layers(2, Residence::sharded).weights - layers(1, Residence::sharded).weights - stays
          : workload.streamed_layer.bytes;
  workload.streamed_layer.host_window =
      std::max<std::int64_t>(0, two_on_host.working - two.working);
  return workload;
}

StageCost DryRuns::text(const DeviceMap::Stage& stage) {
  const std::int64_t count = stage.last - stage.first;
  const auto [entry, is_new] = texts_.try_emplace({count, stage.embedding, stage.final_norm});
  if (is_new) {
    entry->second = run_text({0, count, stage.embedding, stage.final_norm}, Residence::replicated);
  }
  return entry->second;
}

}  // namespace reelmesh
