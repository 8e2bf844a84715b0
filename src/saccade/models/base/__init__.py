"""What models of one kind share: the protocol of matchers and the encoders that most of them have."""

from saccade.models.base.matcher import EncoderConfig, EncoderMatcher, FragmentConfig, FragmentMatcher, Matcher

__all__ = ["EncoderConfig", "EncoderMatcher", "FragmentConfig", "FragmentMatcher", "Matcher"]
