// Intermediate results of a mixture-of-experts step in the device's work space: byte offsets; mirrors opencl::MoeWork.
// Pick p = row * per_row + rank; the shared expert, where there is one, is the last rank of every row and expert number
// `experts`.
typedef struct {
  ulong logits;      // f32 [rows, logit_stride]
  ulong expert_of;   // i32 [picks]
  ulong weight_of;   // f32 [picks]
  ulong order;       // i32 [picks]: picks grouped by expert
  ulong units;       // int4 [units]: expert, first place in order, count
  ulong unit_count;  // i32
  ulong hidden;      // f32 [picks, hidden_stride]: what the down projections take
  ulong results;     // f32 [picks, results_stride]: what they give
  uint logit_stride, hidden_stride, results_stride, per_row;
} work_t;

#define WORK(type, offset) ((__global type*)(work + (offset)))
