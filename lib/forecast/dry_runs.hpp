#pragma once
// What the stages of a job take on a rank, counted by running the model's parts on shapes
// (tensor/ledger.hpp) in groups of pretended ranks.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "job/family.hpp"
#include "job/training_replica.hpp"
#include "tensor/ledger.hpp"
#include "weights/lora_changes.hpp"

namespace reelmesh {

/// A training whose steps run in place of denoising.
struct DryTraining {
  TrainSettings settings;
  MakeTrainingReplica make;
};

/// The times of a machine while its ranks encode texts, and in all other stages; null if not known.
struct StageTimes {
  std::shared_ptr<const TimeModel> text, others;
};

/// What a rank needs beside what the model's parts take.
struct BesideParts {
  LoraMemory loras;     ///< of the host, while weights are read
  bool decodes = true;  ///< otherwise the decoder is not even loaded
};

/// Dry runs of one model. Ranks with equal shares of a clip run once. The transformer runs with one
/// and with two layers, since every further layer adds the same; a training runs with all of them.
class DryRuns final : public Costs, public std::enable_shared_from_this<DryRuns> {
 public:
  /// unlike_processors: as WeightPlacement. The family must outlive the object and the workloads
  /// that it completes.
  static std::shared_ptr<DryRuns> of(const Family& family, const Precision& precision,
                                     const Numerics& numerics, bool unlike_processors,
                                     StageTimes times, std::optional<DryTraining> training = {},
                                     const BesideParts& beside = {});
  ~DryRuns() override;

  /// Gives a workload, which Family::workload() has made for clips like this one, what it lacks: as
  /// the next of Workload::sizes. together: clips that are denoised together; 1 in a training.
  /// reading: bytes of the host while the file is read that a clip begins from.
  void complete(ClipWorkload& workload, const Clip& clip, std::int64_t together,
                std::int64_t reading = 0);
  /// The text encoder for texts of at most `tokens` tokens.
  TextWorkload text_workload(std::int64_t tokens);

  // After complete() and text_workload():
  StageCost text(const DeviceMap::Stage& layers) override;
  DenoiseCost denoise(std::size_t size, const DenoiseLayout& layout, int rank,
                      const Replica& replica) override;
  WholeStep whole_step(std::size_t size) override;
  StageCost decode(std::size_t size, const DecodeLayout& layout, int rank) override;
  StageCost encode(std::size_t size, const DecodeLayout& layout, int rank) override;
  std::vector<ConvolutionShape> convolutions() const override;
  double message_seconds(int ranks, std::int64_t messages, std::int64_t bytes) override;
  /// Exact for groups of at most 64 ranks.
  std::int64_t sent_weights(const RankWeights& shares, int rank, int ranks) override;

 private:
  template <class Model>
  struct Part;
  using Transformer = Part<const Denoiser>;
  struct TrainedParts;
  using Trained = Part<TrainedParts>;
  struct Batch;
  struct Step;
  DryRuns(const Family& family, const Precision& precision, const Numerics& numerics,
          bool unlike_processors, StageTimes times, std::optional<DryTraining> training,
          const BesideParts& beside);
  Checkpoint shapes() const;
  Checkpoint shapes(ModelPart part) const;
  std::int64_t history_of(const Clip& clip, std::int64_t predicted_channels) const;
  Transformer& transformer(std::int64_t layers, Residence residence, bool in_turn);
  std::unique_ptr<Transformer> make_transformer(std::int64_t layers,
                                                const WeightPlacement& placement) const;
  Trained& trained(Residence residence);
  std::unique_ptr<Trained> make_trained(const WeightPlacement& placement) const;
  Step training_step(Trained& part, const Batch& batch, const DenoiseLayout& layout, int rank,
                     const Replica& replica);
  Step step(Transformer& part, const Batch& batch, const DenoiseLayout& layout, int rank);
  Step step(Transformer& part, const Batch& batch, const DenoiseLayout& layout, int rank,
            std::int64_t number);
  Step step(const Batch& batch, const DenoiseLayout& layout, int rank, Residence residence,
            const Replica& replica = {}, bool in_turn = false);
  std::vector<std::int64_t> share(const DenoiseLayout& layout, int rank, const Replica& replica);
  std::int64_t sharded_by_one() const;
  const StreamedWeights& streamed(const Batch& batch);
  StageCost run_text(const T5Part& part, Residence residence) const;
  StageCost run_decoder(const Batch& batch, const DecodeLayout& layout, int rank) const;
  StageCost run_encoder(const Batch& batch, const DecodeLayout& layout, int rank,
                        bool embeds) const;
  template <class Model, class Make, class Use>
  StageCost run_part(const std::shared_ptr<const TimeModel>& times, const Make& make,
                     const Use& use) const;
  StageMemory of_stage(std::int64_t weights, std::int64_t loading, std::int64_t running,
                       std::int64_t per_thread, std::int64_t host) const;
  void add_on_host(StageMemory& memory, std::int64_t bytes, std::int64_t per_thread) const;

  const Family& family_;
  Precision precision_;
  Numerics numerics_;
  bool unlike_processors_;
  StageTimes times_;
  std::optional<DryTraining> training_;
  BesideParts beside_;
  // By layers, residence, and whether experts are in memory in turn.
  std::map<std::tuple<std::int64_t, Residence, bool>, std::unique_ptr<Transformer>> transformers_;
  std::map<Residence, std::unique_ptr<Trained>> trained_;
  std::int64_t column_unit_ = 1;                    ///< of TrainingReplica::columns()
  std::map<std::pair<Shape, int>, Layout> images_;  ///< image_latents() of these latents and ranks
  std::vector<std::unique_ptr<Batch>> batches_;     ///< by size
  std::int64_t text_tokens_ = 1;
  std::map<std::tuple<std::int64_t, bool, bool>, StageCost> texts_;  ///< by layers of a part
  std::map<std::tuple<RankWeights, int, int>, std::int64_t> sent_weights_;
  std::optional<StreamedWeights> streamed_;
  mutable std::map<ModelPart, Checkpoint> stored_;
  mutable std::set<ConvolutionShape> convolutions_;  ///< of all runs so far
};

}  // namespace reelmesh
