import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.pool import GraphPool
from attention_on_edges.training import LabelSmoothing, output_loss
from attention_on_edges.training.loss import batch_loss
from attention_on_edges.tutorial import NoamOpt, SimpleLossCompute, run_epoch
from book_support import small_model

VOCAB, PAD = 6, 2


@given(st.floats(0, 0.9), st.integers(0, 3))
def test_label_smoothing_is_the_divergence_from_the_smoothed_target(smoothing, seed):
    torch.manual_seed(seed)
    log_probs = torch.randn(5, VOCAB, dtype=torch.float64).log_softmax(1).requires_grad_()
    target = torch.tensor([0, 1, PAD, 5, 3])
    share = smoothing / (VOCAB - 2)
    wanted = torch.full((5, VOCAB), share, dtype=torch.float64)
    wanted[torch.arange(5), target] = 1 - smoothing
    wanted[:, PAD] = 0
    wanted[target == PAD] = 0
    criterion = LabelSmoothing(VOCAB, PAD, smoothing)
    torch.testing.assert_close(criterion.distribution(target).double(), wanted)
    expected = torch.nn.functional.kl_div(log_probs, wanted, reduction="sum")
    loss = criterion(log_probs, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, log_probs)[0] for x in (loss, expected)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_impossible_padding_leaves_the_loss_finite(smoothing):
    log_probs = torch.zeros(1, VOCAB).index_fill(1, torch.tensor([PAD]), -torch.inf).log_softmax(1)
    log_probs.requires_grad_()
    loss = LabelSmoothing(VOCAB, PAD, smoothing)(log_probs, torch.tensor([3]))
    loss.backward()
    assert loss.isfinite()
    assert bool(log_probs.grad.isfinite().all())


class TestOutputLoss:
    @given(
        st.integers(1, 40), st.integers(3, 9), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 200),
        st.booleans(), st.integers(0, 3),
    )  # fmt: skip
    def test_it_equals_the_loss_of_all_log_probabilities(self, tokens, vocab, smoothing, chunk, biased, seed):
        torch.manual_seed(seed)
        criterion = LabelSmoothing(vocab, 2, smoothing)
        target = torch.randint(0, vocab, (tokens,))
        exact = [torch.randn(s, dtype=torch.float64) for s in ((tokens, 5), (vocab, 5), (vocab,))]
        exact[2][2] = (0, -1e9, -torch.inf)[seed % 3]  # it is never to be predicted
        exact = [x.requires_grad_() for x in exact[: 3 if biased else 2]]
        logits = exact[0] @ exact[1].T + (exact[2] if biased else 0)
        expected = criterion(logits.log_softmax(1), target)
        given = [x.detach().float().requires_grad_() for x in exact]
        bias = given[2] if biased else None
        loss, correct = output_loss(*given[:2], bias, target, criterion, chunk)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-4, rel=1e-5)
        assert correct == int((logits.argmax(1) == target)[target != 2].sum())
        grads, wanted = torch.autograd.grad(3 * loss, given), torch.autograd.grad(3 * expected, exact)
        for grad, reference in zip(grads, wanted, strict=True):
            torch.testing.assert_close(grad.double(), reference, atol=1e-5, rtol=1e-5)

    def test_of_equal_predictions_the_first_counts(self):
        hidden, weight, target = (torch.randint(0, 3, size).float() for size in ((200, 4), (9, 4), (200,)))
        _, correct = output_loss(hidden, weight, None, target.long(), LabelSmoothing(9, 8), 50)
        scores = hidden @ weight.T
        assert (scores == scores.amax(1, keepdim=True)).sum() > 250
        assert correct == int((scores.argmax(1) == target).sum())

    def test_padding_counts_neither_in_the_loss_nor_among_tokens(self):
        model = small_model()
        criterion = LabelSmoothing(model.generator.proj.out_features, 2, 0.1)
        model.generator.proj.bias.data[2] = 20  # it is what the model predicts
        alone = batch_loss(model, GraphPool()([[3, 4]], [[0, 5, 6]]), criterion)
        for _ in range(2):
            padded = batch_loss(model, GraphPool()([[3, 4]], [[0, 5, 6, 2, 2]]), criterion)
            assert (padded.tokens, padded.correct) == (alone.tokens, alone.correct) == (2, 0)
            torch.testing.assert_close(padded.total, alone.total)
            model.generator.proj.register_forward_hook(lambda *_: None)  # what all logits are computed for

    def test_autocast_rounds_products_and_nothing_else(self):
        hidden, weight = torch.randn(50, 64), torch.randn(300, 64)
        criterion, target = LabelSmoothing(300, 2, 0.1), torch.arange(3, 53)
        exact, _ = output_loss(hidden, weight, None, target, criterion)
        with torch.autocast("cpu", torch.bfloat16):
            rounded, _ = output_loss(hidden.bfloat16(), weight, None, target, criterion)
        half = [x.bfloat16() for x in (hidden, weight)]
        expected = criterion((half[0] @ half[1].T).float().log_softmax(1), target)
        assert rounded.dtype == torch.float32
        assert rounded.item() == pytest.approx(expected.item(), rel=1e-5) != exact.item()

    def test_it_never_holds_all_logits(self):
        tokens, vocab = 2048, 1500
        hidden = torch.randn(tokens, 4, requires_grad=True)
        weight = torch.randn(vocab, 4, requires_grad=True)
        target = torch.randint(3, vocab, (tokens,))
        sizes = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                if isinstance(result, torch.Tensor):
                    sizes.append(result.untyped_storage().nbytes() // 4)
                return result

        with Watch():
            criterion = LabelSmoothing(vocab, 2, 0.1)
            output_loss(hidden, weight, None, target, criterion, 2**16)[0].backward()
        assert max(sizes) <= 2 * 2**16
        assert len(sizes) > 10


@pytest.mark.parametrize("with_warmup", [True, False])
@pytest.mark.parametrize("with_decay", [True, False])
def test_noam_follows_its_formula_and_sets_the_rate_that_is_used(with_warmup, with_decay):
    parameter = torch.nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([parameter], lr=123.0)
    noam = NoamOpt(128, 2.0, 400, sgd, with_warmup, with_decay)
    for step in (1, 400, 4000):
        rising, falling = step * 400**-1.5 if with_warmup else 0.05, step**-0.5 if with_decay else 0.05
        assert noam.rate(step) == pytest.approx(2 * 128**-0.5 * min(rising, falling))
    parameter.grad = torch.ones(1)
    noam.step()
    noam.step()
    assert parameter.item() == pytest.approx(-(noam.rate(1) + noam.rate(2)))
    noam.zero_grad()
    assert parameter.grad is None


class TestLossCompute:
    log_probs = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]).log()
    target = torch.tensor([0, 1, 1])

    def test_it_counts(self):
        compute = SimpleLossCompute(torch.nn.NLLLoss(reduction="sum"))
        losses = [compute(self.log_probs, self.target, 3) for _ in range(2)]
        expected = -math.log(0.7 * 0.1 * 0.4) / 3
        assert [*losses, compute.avg_loss] == pytest.approx([expected] * 3)
        assert compute.accuracy == pytest.approx(2 / 3)


def test_an_epoch_reports_its_own_losses_with_gradients_in_training_only():
    bias, gradients = torch.nn.Parameter(torch.zeros(VOCAB)), []

    def model(batch):
        gradients.append(torch.is_grad_enabled())
        return bias.expand(batch.n_tokens, -1).log_softmax(1)

    batches = [GraphPool()([[3]], [[0, token, 1]]) for token in (3, 4, 5)]
    learn = SimpleLossCompute(LabelSmoothing(VOCAB, PAD), torch.optim.SGD([bias], lr=1.0))
    run_epoch(batches[:2], model, learn)
    second = run_epoch(batches, model, learn)
    assert second.loss == pytest.approx(sum(second.losses) / 3)
    run_epoch(batches[:1], model, SimpleLossCompute(LabelSmoothing(VOCAB, PAD)), is_train=False)
    assert gradients == [True] * 5 + [False]


log_probs, target = torch.zeros(2, VOCAB), torch.tensor([0, 1])
sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LabelSmoothing(2, 0), ValueError, "size must be at least 3, got 2"),
        (lambda: LabelSmoothing(6, 6), ValueError, r"padding_idx must lie in 0\.\.5, got 6"),
        (lambda: LabelSmoothing(6, 0, 1.0), ValueError, r"smoothing must lie in \[0, 1\), got 1.0"),
        (lambda: LabelSmoothing(6, 0)(log_probs[:, :5], target), ValueError, r"got \[2, 5\] and \[2\]"),
        (lambda: LabelSmoothing(6, 0)(log_probs, target + 5), ValueError, "target must lie in"),
        (lambda: NoamOpt(8, 1, 0, sgd), ValueError, "warmup must be at least 1, got 0"),
        (lambda: NoamOpt(8, 1, 10, None), TypeError, "optimizer must be a torch.optim.Optimizer, got None"),
        (lambda: NoamOpt(8, 1, 10, sgd).rate(0), ValueError, "step must be at least 1, got 0"),
        (lambda: SimpleLossCompute(None, 0.1), TypeError, r"opt must have step\(\) and zero_grad"),
        (lambda: run_epoch([], None, SimpleLossCompute(None)), ValueError, "loss_compute has no optimiser"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
