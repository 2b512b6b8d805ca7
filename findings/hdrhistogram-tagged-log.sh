#!/bin/sh
# One would guess: Java's HistogramLogProcessor adds up all intervals of a log, whatever tags they have, as it does
# where none has a tag; or it says that the log has no interval without a tag.
#
# What happens (HdrHistogram 2.2.2): without -tag it takes intervals without a tag only. Where the log has none, it
# prints no percentile: a NullPointerException ends its thread, and the exit status is 0. With -tag NAME it prints the
# intervals of that tag.
#
# Needs java and mvn. Fails if the behaviour has changed.
set -eu

version=2.2.2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"

mvn -q -B -Dmaven.repo.local="$home/maven" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    -Dartifact="org.hdrhistogram:HdrHistogram:$version" -DoutputDirectory="$home" >mvn.log 2>&1 || {
    cat mvn.log
    exit 1
}
jar=$home/HdrHistogram-$version.jar

cat >Write.java <<'JAVA'
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogWriter;

public class Write {
    public static void main(String[] arguments) throws Exception {
        HistogramLogWriter log = new HistogramLogWriter(arguments[0]);
        log.outputLogFormatVersion();
        log.outputLegend();
        for (int second = 0; second < 2; second++) {
            Histogram latencies = new Histogram(3);
            for (int i = 1; i <= 100; i++) {
                latencies.recordValue(i * 1000L);
            }
            latencies.setStartTimeStamp(second * 1000L);
            latencies.setEndTimeStamp(second * 1000L + 1000L);
            if (arguments.length > 1) {
                latencies.setTag(arguments[1]);
            }
            log.outputIntervalHistogram(latencies);
        }
        log.close();
    }
}
JAVA
java -cp "$jar" Write.java plain.hlog
java -cp "$jar" Write.java tagged.hlog sda

process() {
    java -cp "$jar" org.HdrHistogram.HistogramLogProcessor "$@"
}

count() {
    sed -n 's/.*Total count *= *\([0-9]*\).*/\1/p' "$1"
}

process -i plain.hlog >plain.txt 2>&1
process -i tagged.hlog -tag sda >with-tag.txt 2>&1
status=0
process -i tagged.hlog >without-tag.txt 2>&1 || status=$?

echo "HdrHistogram $version"
echo "a log without tags: total count $(count plain.txt)"
echo "a log with tags, -tag sda: total count $(count with-tag.txt)"
echo "a log with tags, no -tag: status $status, total count '$(count without-tag.txt)'"
grep -m 1 NullPointerException without-tag.txt || true

[ "$(count plain.txt)" = 200 ] && [ "$(count with-tag.txt)" = 200 ] && [ -z "$(count without-tag.txt)" ] &&
    grep -q NullPointerException without-tag.txt || {
    echo "the behaviour has changed" >&2
    exit 1
}
