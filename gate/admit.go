package gate

import (
	"context"
	"fmt"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

// verdicts maps each code of admit.lua to an outcome.
var verdicts = [...]model.Outcome{
	codeAdmitted:     {Verdict: model.Accepted},
	codeKnown:        {Verdict: model.Accepted, Repeated: true},
	codeMismatch:     {Verdict: model.IdempotencyMismatch, Repeated: true},
	codeNoGate:       {Verdict: model.NoGate},
	codeClosed:       {Verdict: model.NoGate},
	codeTooFrequent:  {Verdict: model.TooFrequent},
	codeNotStarted:   {Verdict: model.NotStarted},
	codeEnded:        {Verdict: model.Ended},
	codePaused:       {Verdict: model.Paused},
	codeBadQuantity:  {Verdict: model.BadRequest},
	codeLimitReached: {Verdict: model.LimitReached},
	codeSoldOut:      {Verdict: model.SoldOut},
}

// The codes that admit.lua returns.
const (
	codeAdmitted = iota
	codeKnown
	codeMismatch
	codeNoGate
	codeClosed
	codeTooFrequent
	codeNotStarted
	codeEnded
	codePaused
	codeBadQuantity
	codeLimitReached
	codeSoldOut
)

// Admit judges attempts on one sale in the order of their arrival. It takes the units of those that pass and appends
// them to the stream, with one run of the script for each shard of the gate. epoch is the newest epoch that the caller
// has read: a gate with an older epoch admits nothing, and neither does a gate that was installed on another Redis
// process.
//
// The outcomes are in the order of the attempts: queued (Repeated if the id was known), a refusal, model.NoGate if
// there is no open gate, or model.Unsure if not all shards could be asked for units. After an error, any of the
// attempts may have been admitted.
func (g *Gate) Admit(ctx context.Context, gate model.GateRef, attempts []model.Attempt, epoch int64) (outcomes []model.Outcome, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{
		Name: observe.Admit, Items: len(attempts), OrderID: func(i int) string { return attempts[i].ID },
	})
	defer func() { end(err) }()
	tags := tagsOf(gate)
	if len(tags) == 1 {
		return g.admit(ctx, tags[0], attempts, epoch)
	}
	outcomes = make([]model.Outcome, len(attempts))
	err = atHome(len(tags), len(attempts), func(i int) string { return attempts[i].UserID }, func(home int, places []int) error {
		of := make([]model.Attempt, len(places))
		for at, i := range places {
			of[at] = attempts[i]
		}
		judged, err := g.admitAt(ctx, tags, home, of, epoch)
		for at, outcome := range judged {
			outcomes[places[at]] = outcome
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// admit runs admit.lua on the shard of a gate to which all these attempts belong.
func (g *Gate) admit(ctx context.Context, tag string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	keys := make([]string, 4, 4+len(attempts))
	keys[0], keys[1], keys[2], keys[3] = gateKey(tag), unitsKey(tag), idsKey(tag), streamKey(tag)
	args := make([]any, 2, 2+7*len(attempts))
	args[0], args[1] = g.instance, epoch
	for _, a := range attempts {
		keys = append(keys, counterKey(tag, a.UserID))
		args = append(args, a.ID, a.UserID, a.Quantity, a.RequestHash, a.IdempotencyKey, a.Frequency.Limit, a.Frequency.Window.Milliseconds())
	}
	reply, err := admitScript.Run(ctx, g.client, keys, args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("admit: %w", err)
	}
	if len(reply) != 2*len(attempts) {
		return nil, fmt.Errorf("admit: %d values for %d attempts", len(reply), len(attempts))
	}
	outcomes := make([]model.Outcome, len(attempts))
	for i := range outcomes {
		code, ms := reply[2*i], reply[2*i+1]
		if code < 0 || code >= int64(len(verdicts)) {
			return nil, fmt.Errorf("admit: unknown code %d", code)
		}
		outcomes[i] = verdicts[code]
		outcomes[i].RetryAfter = time.Duration(ms) * time.Millisecond
	}
	return outcomes, nil
}
