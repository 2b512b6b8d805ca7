#!/bin/sh
# One would guess: the sum of a native histogram of Prometheus is for means only. An exporter that has counts per bucket
# and no sum may send NaN, "not known", and quantiles are right.
#
# What happens (github.com/prometheus/prometheus v0.315.1, that is Prometheus 3.15; so did 3.5): a sum of NaN says that
# observations of NaN may be among the I/Os. histogram_quantile() looks for them in the buckets above the one that it
# has found, and goes on with the last bucket instead (HistogramQuantile in promql/quantile.go): of 999 I/Os of 21 us
# and one of 1 s the p50 is 6e18 s, without a message. With a sum of 0 it is right.
#
# Needs go 1.25, and downloads the modules of Prometheus, else it exits with 77. Fails if the behaviour has changed.
set -eu

command -v go >/dev/null || { echo "needs go" >&2; exit 77; }
version=v0.315.1
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE="$home/modules" GOCACHE="$home/cache" GOTOOLCHAIN=local GOWORK=off

cat >go.mod <<'GO'
module finding

go 1.25
GO
cat >main.go <<'GO'
package main

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

func main() {
	for _, sum := range []float64{1.021, 0, math.NaN()} {
		latencies := &histogram.FloatHistogram{
			Schema:          3, // eight buckets per octave; -124 ends at 21.6 us, 0 at 1 s
			Count:           1000,
			Sum:             sum,
			PositiveSpans:   []histogram.Span{{Offset: -124, Length: 1}, {Offset: 123, Length: 1}},
			PositiveBuckets: []float64{999, 1},
		}
		if err := latencies.Validate(); err != nil {
			panic(err)
		}
		p50, _ := promql.HistogramQuantile(0.5, latencies, "latency_seconds", posrange.PositionRange{})
		fmt.Printf("%g %g\n", sum, p50)
	}
}
GO
if ! { go get "github.com/prometheus/prometheus/promql@$version" && go build -o quantile .; } >go.log 2>&1; then
    tail -n 3 go.log >&2
    echo "needs go 1.25 and the modules of Prometheus $version" >&2
    exit 77
fi

./quantile >quantiles
echo "github.com/prometheus/prometheus $version, $(go version | cut -d ' ' -f 3)"
sed 's/\(.*\) \(.*\)/999 I\/Os of 21 us and one of 1 s, sum \1: p50 \2 s/' quantiles
awk '{ right = $2 > 1.9e-5 && $2 < 2.2e-5; if (right != ($1 != "NaN")) changed = 1 } END { exit changed || NR != 3 }' \
    quantiles || {
    echo "the behaviour has changed" >&2
    exit 1
}
