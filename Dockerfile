FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
# Before the sources: this layer is good until a module changes.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# The build context has no .git, so the version comes from outside.
ARG VERSION=0.1.0
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -pgo=app/serve.pgo -tags nomsgpack -ldflags "-s -w -X main.version=$VERSION" -o /image/flashsale .
# /data for SQLite, the secret and reports, where nothing else is set; /tmp as every program may expect it.
RUN mkdir -m 0700 /image/data && mkdir -m 1777 /image/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /
COPY --from=build --chown=65532:65532 /image/ /
# A number, so that Kubernetes can tell that it isn't root. The image has no other users.
USER 65532:65532
WORKDIR /
VOLUME /data
# A server on the container's loopback couldn't be reached. The operator's address stays there unless set.
ENV FLASHSALE_HTTP_ADDR=0.0.0.0:8080 ZONEINFO=/zoneinfo.zip
EXPOSE 8080 9090
# That the process lives and serves. Whether its stores answer is /readyz, which is for balancers.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["/flashsale", "health"]
ENTRYPOINT ["/flashsale"]
